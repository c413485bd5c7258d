"""`captioning caption`: captions for photos and folders of photos."""

import argparse
import json
import sys

from captioning.cli.options import Commands, add_model, add_search, model_and_search
from captioning.errors import InputError


def add(commands: Commands) -> None:
    """Tell the parser of this command."""
    parser = commands.add_parser("caption", help="caption photos with a trained model")
    parser.add_argument("photos", nargs="+", metavar="PHOTO", help="photos, or folders of photos")
    add_model(parser)
    add_search(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per photo")
    parser.add_argument(
        "--overlay", metavar="DIR", help="write a picture per photo of where the model looked"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Caption the photos; 1 where one cannot be read."""
    from tqdm import tqdm

    from captioning.data.images import find_images, read_image
    from captioning.models.batches import captioned
    from captioning.viewing.names import picture_names

    photos = find_images(options.photos)
    pictures = picture_names(photos, options.overlay) if options.overlay else {}
    captioner, search = model_and_search(options)
    failed = False
    # tqdm.write keeps lines and the progress bar apart where both go to one terminal.
    for photo, caption in captioned(captioner, photos, search, options.batch_size):
        if isinstance(caption, InputError):
            tqdm.write(f"captioning: {caption}", file=sys.stderr)
            failed = True
            continue
        if pictures:
            from captioning.viewing.overlay import save

            save(read_image(photo), caption, pictures[photo])
        line = {"image": str(photo), **caption.as_json()}
        shown = json.dumps(line, ensure_ascii=False) if options.json else f"{photo}\t{caption.text}"
        tqdm.write(shown, file=sys.stdout)
    return 1 if failed else 0

"""`captioning serve` and `captioning demo`: a web page and a JSON API for captions."""

from pathlib import Path

from cyclopts.types import PositiveFloat, PositiveInt

from captioning.commands.options import MapNames, ModelOptions, Port, SearchOptions


def serve_captions(
    *,
    model_options: ModelOptions = ModelOptions(),
    search_options: SearchOptions = SearchOptions(),
    maps: MapNames = (),
    host: str = "127.0.0.1",
    port: Port = 8000,
    allow_host: tuple[str, ...] = (),
    max_megabytes: PositiveInt = 20,
    max_megapixels: PositiveInt = 25,
    max_photos: PositiveInt = 16,
    decode_timeout: PositiveFloat = 10.0,
    timeout: PositiveFloat = 30.0,
    queue: PositiveInt = 128,
) -> None:
    """Serve a page in the browser and a JSON API, until interrupted; needs the extra serve.

    With --map, requests may choose among these maps only, and the first is their default.

    Args:
        host: Address to listen on; 0.0.0.0 for all of this machine.
        port: 0 for any free one.
        allow_host: A further name of the server, besides localhost and --host, such as that of a
            proxy; repeatable. With --host 0.0.0.0 this machine's name and all numeric addresses
            are allowed too.
        max_megabytes: Of a request.
        max_megapixels: Of a photo; decoding takes up to 25 MB for each.
        max_photos: Of a request.
        decode_timeout: Seconds that decoding a photo may take.
        timeout: Seconds that a request may take.
        queue: Photos that wait or are captioned at a time, at most half of them of one client
            (unless its last request brings more).
    """
    from captioning import serving

    address = serving.free_address(host, port)
    hosts = serving.AllowedHosts(address[0], host, tuple(map(str.lower, allow_host)))
    captioner = model_options.load()
    limits = serving.Limits(
        bytes=max_megabytes * 1_000_000,
        pixels=max_megapixels * 1_000_000,
        decoding_seconds=decode_timeout,
        seconds=timeout,
        queue=queue,
        photos=max_photos,
    )
    name = "/".join(Path(model_options.model).parts[-2:])  # not the whole path
    captioner.search = search_options.search(captioner)
    app = serving.application(captioner, name, model_options.batch_size, limits, maps)
    serving.serve(serving.Protection(app, limits, hosts), address, limits)


def demo(
    *,
    port: Port = 0,
    no_browser: bool = False,
    maps: MapNames = (),
) -> None:
    """Open the web page at once: the model that comes with the package, and photos to click.

    Another tab has drawn scenes. Needs the extra serve.

    Args:
        port: By default any free one.
        no_browser: Only print the address.
    """
    from captioning import serving
    from captioning.serving.demo import demo_application

    address = serving.free_address("127.0.0.1", port)
    limits = serving.Limits()
    app = serving.Protection(demo_application(limits, maps), limits)
    serving.serve(app, address, limits, opens_browser=not no_browser)

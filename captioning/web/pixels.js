/* What the model sees of a photo: the same numbers as those of the Python package, but for photos
   so large that both read them at reduced size. */

const GREY = 128; // of the bars beside a padded photo
const LONGEST = 65535; // pixels of a canvas's side
const BITS = 22; // behind the point of a weight, as in Pillow

/* A photo's image, upright, and its pixels at most 8 times reduced. */
const decoded = async (photo, least) => {
  let image;
  try {
    image = await createImageBitmap(photo, { colorSpaceConversion: "none" });
  } catch {
    throw new Error(`${photo.name}: this browser cannot read it; convert it to JPEG or PNG.`);
  }
  const { width, height } = image;
  if (Math.max(width, height) > LONGEST) {
    throw new Error(`${photo.name}: ${width} x ${height} pixels are more than browsers draw; ` +
      "scale it down.");
  }
  const times = [8, 4, 2, 1].find((each) => Math.min(width, height) >= each * least) ?? 1;
  if (times > 1) {
    const whole = image;
    image = await createImageBitmap(whole, {
      resizeWidth: Math.ceil(width / times),
      resizeHeight: Math.ceil(height / times),
      resizeQuality: "high",
    });
    whole.close();
  }
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white"; // shows through where the photo is transparent
  context.fillRect(0, 0, image.width, image.height);
  context.drawImage(image, 0, 0);
  image.close(); // at once, rather than with other garbage
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  return { data, times, width, height, across: canvas.width, down: canvas.height };
};

/* What is seen of a photo along one axis; bars take whole pixels of the image. */
const axis = (start, extent, length, size) => {
  const first = Math.max(start, 0);
  const last = Math.min(start + extent, length);
  if (first === start && last === start + extent) {
    return { first, last, pixels: size, bar: 0, start, extent };
  }
  const pixels = Math.max(1, Math.round(size * (last - first) / extent));
  const bar = Math.min(Math.round(size * (first - start) / extent), size - pixels);
  const scale = (last - first) / pixels;
  return { first, last, pixels, bar, start: first - bar * scale, extent: size * scale };
};

/* Where each pixel of a smaller image begins in the larger one, and the weights from there on:
   Pillow's antialiased bilinear filter. */
const filter = (length, first, last, pixels) => {
  const scale = (last - first) / pixels;
  const support = Math.max(scale, 1);
  return Array.from({ length: pixels }, (_, pixel) => {
    const centre = first + (pixel + 0.5) * scale;
    const begin = Math.max(Math.trunc(centre - support + 0.5), 0);
    const end = Math.min(Math.trunc(centre + support + 0.5), length);
    const weights = Array.from({ length: end - begin }, (_, place) =>
      Math.max(1 - Math.abs((place + begin - centre + 0.5) / support), 0));
    const sum = weights.reduce((total, weight) => total + weight, 0);
    return { begin, weights: weights.map((each) => Math.trunc(0.5 + each / sum * 2 ** BITS)) };
  });
};

/* An image (height, width, channels) made narrower, with its axes exchanged: (columns, height, 3).
   So a second call makes it lower, and upright again. */
const narrowed = (data, width, height, channels, columns) => {
  const found = new Uint8ClampedArray(columns.length * height * 3);
  for (let y = 0; y < height; y += 1) {
    columns.forEach(({ begin, weights }, x) => {
      for (let c = 0; c < 3; c += 1) {
        let sum = 2 ** (BITS - 1);
        let from = (y * width + begin) * channels + c;
        for (const weight of weights) {
          sum += weight * data[from];
          from += channels;
        }
        found[(x * height + y) * 3 + c] = sum >> BITS;
      }
    });
  }
  return found;
};

/* The pixels (3, S, S), the part of the photo that they show, and the photo's size. */
export const seen = async (photo, { size, fit }) => {
  const { data, times, width, height, across, down } =
    await decoded(photo, Math.ceil(2 * size * 8 / 7));
  const side = fit === "crop" ? Math.min(width, height) : Math.max(width, height);
  const [high, wide] = fit === "squeeze" ? [height, width] : [side, side];
  const x = axis((width - wide) / 2, wide, width, size);
  const y = axis((height - high) / 2, high, height, size);
  const columns = filter(across, x.first / times, Math.min(x.last / times, across), x.pixels);
  const rows = filter(down, y.first / times, Math.min(y.last / times, down), y.pixels);
  // As Pillow 13 does: its height first, if that loses far more.
  const lower = down > y.pixels && down - y.pixels > 2 * (across - x.pixels);
  const turned = narrowed(data, across, down, 4, lower ? filter(across, 0, across, across) : columns);
  const small = lower
    ? narrowed(narrowed(turned, down, across, 3, rows), across, y.pixels, 3, columns)
    : narrowed(turned, down, x.pixels, 3, rows);
  const [right, below] = lower ? [y.pixels, 1] : [1, x.pixels];
  const pixels = new Uint8Array(3 * size * size).fill(GREY);
  for (let c = 0; c < 3; c += 1) {
    for (let row = 0; row < y.pixels; row += 1) {
      for (let column = 0; column < x.pixels; column += 1) {
        pixels[(c * size + row + y.bar) * size + column + x.bar] =
          small[(row * below + column * right) * 3 + c];
      }
    }
  }
  return { pixels, size: [width, height], crop: [x.start, y.start, x.extent, y.extent] };
};

/* Parts of a photo turn grey, and what the model says of the rest shows what it needed. */
"use strict";

const hiding = (() => {
  const GREY = "#808080";
  const MOST = 2048; // pixels of the longer side of a photo with hidden parts
  const LEAST = 0.02; // of a side: a smaller rectangle is a click
  const SIDE = 3; // rows and columns of the neighbourhood that is hidden around a map's peak

  /* The photo with these parts grey; each is left, top, width and height as shares of its sides. */
  const without = async (photo, parts) => {
    const image = await createImageBitmap(photo, { colorSpaceConversion: "none" });
    const scale = Math.min(1, MOST / Math.max(image.width, image.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(scale * image.width));
    canvas.height = Math.max(1, Math.round(scale * image.height));
    const context = canvas.getContext("2d");
    context.fillStyle = "white"; // shows through where the photo is transparent
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    image.close();
    context.fillStyle = GREY;
    for (const [left, top, width, height] of parts) {
      context.fillRect(left * canvas.width, top * canvas.height,
        width * canvas.width, height * canvas.height);
    }
    const painted = await new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
    return new File([painted], photo.name, { type: painted.type });
  };

  /* Let a mouse or a pen drag rectangles over an element; `done` is called with each. A finger
     scrolls the page. */
  const dragged = (element, done) => {
    let from = null;
    const rectangle = document.createElement("div");
    rectangle.className = "hiding";
    const place = ({ clientX, clientY }) => {
      const { left, top, width, height } = element.getBoundingClientRect();
      const share = (at, start, length) => Math.min(Math.max((at - start) / length, 0), 1);
      return [share(clientX, left, width), share(clientY, top, height)];
    };
    const part = (event) => {
      const to = place(event);
      const [left, top] = from.map((value, i) => Math.min(value, to[i]));
      return [left, top, ...from.map((value, i) => Math.abs(value - to[i]))];
    };
    element.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button) return;
      from = place(event);
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener("pointermove", (event) => {
      if (!from) return;
      const names = ["left", "top", "width", "height"];
      part(event).forEach((share, i) => { rectangle.style[names[i]] = `${100 * share}%`; });
      element.append(rectangle);
    });
    element.addEventListener("pointerup", (event) => {
      if (!from) return;
      const found = part(event);
      from = null;
      rectangle.remove();
      if (Math.min(found[2], found[3]) > LEAST) done(found);
    });
    element.addEventListener("pointercancel", () => { from = null; rectangle.remove(); });
  };

  /* The part around the peak of a word's map. */
  const peakOf = (view, index) => {
    const { rows, columns, words } = view.panes[0].source;
    const { size, crop, offset } = view.data;
    const cells = Uint8Array.from(atob(words[index].weights), (letter) => letter.charCodeAt(0));
    const peak = cells.indexOf(Math.max(...cells));
    const along = (cell, count, side) => {
      const start = Math.min(Math.max(cell + offset[1 - side] - (SIDE - 1) / 2, 0),
        Math.max(count - SIDE, 0));
      const share = (place) =>
        Math.min(Math.max((crop[side] + place / count * crop[side + 2]) / size[side], 0), 1);
      return [share(start), share(start + Math.min(SIDE, count)) - share(start)];
    };
    const [left, width] = along(peak % columns, columns, 0);
    const [top, height] = along(Math.floor(peak / columns), rows, 1);
    return [left, top, width, height];
  };

  /* For the words of two captions, whether each is in their longest common subsequence. */
  const common = (one, other) => {
    let below = Array(other.length + 1).fill([]); // pairs of places in what follows both
    for (let i = one.length - 1; i >= 0; i -= 1) {
      const row = Array(other.length + 1).fill([]);
      for (let j = other.length - 1; j >= 0; j -= 1) {
        if (one[i] === other[j]) row[j] = [[i, j], ...below[j + 1]];
        else row[j] = below[j].length >= row[j + 1].length ? below[j] : row[j + 1];
      }
      below = row;
    }
    return [one, other].map((words, side) =>
      words.map((_, place) => below[0].some((pair) => pair[side] === place)));
  };

  return { without, dragged, peakOf, common };
})();

/* The view of a caption: the photo, its words, and a map of each word.

   attentionView.mount(element, data, options) fills an element with the view of `data`, as
   described by `captioning.viewing.viewer.data`, and removes the view that was mounted there.
   Options: `keys` is the element or document that listens to keys, by default the view itself;
   `isFixed` leaves out the choice of maps; `say({ begin })` and `say({ text })` promise the
   model's caption that begins with these words, or its reading of this text, or null.
   Every <script type="application/json" data-attention-view> is mounted into its parent. */
"use strict";

const attentionView = (() => {
  // Inferno (matplotlib, CC0) begins at black and its lightness grows evenly.
  const INFERNO =
    "000004 0b0724 210c4a 3d0965 57106e 71196e 8a226a a32c61 bc3754 " +
    "d24644 e45a31 f1731d f98e09 fcac11 f9cb35 f2ea69 fcffa4";
  const STOPS = INFERNO.split(" ").map((hex) =>
    [0, 2, 4].map((place) => parseInt(hex.slice(place, place + 2), 16)));
  const SIDE = 256; // approximate pixels of a map's side
  const FADE = 160; // milliseconds from one word's map to the next
  const PACE = 1100; // milliseconds per word while playing
  const DARKEST = 0.88; // opacity of the spotlight's dark

  const mounted = new WeakMap();
  let serial = 0; // radio buttons of one name are one group in the whole page

  /* A caption is shown as a sentence, with a full stop in scripts that have capitals. */
  const capital = ([first = "", ...others]) => [first.toLocaleUpperCase(), ...others].join("");
  const sentenceOf = ({ caption }) => capital(caption) + fullStop(caption);
  const fullStop = (text) => (/[\p{Ll}\p{Lu}]$/u.test(text) ? "." : "");

  /* The space before each word in its caption, or nothing: some scripts have none. */
  const spacesOf = ({ caption, words }) => {
    let end = 0;
    return words.map(({ word }) => {
      const space = caption[end] === " " ? " " : "";
      end += space.length + word.length;
      return space;
    });
  };

  /* Put a text on the clipboard. */
  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // the page is not from a secure address, or in a frame that may not
      const field = make("textarea", { class: "hidden" });
      document.body.append(field);
      field.value = text;
      field.select();
      document.execCommand("copy");
      field.remove();
    }
  };

  /* Children that are strings become text nodes, never markup. */
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };

  const percent = (share) => {
    const value = 100 * share;
    if (value < 0.1) return "<0.1%";
    return `${value < 9.95 ? value.toFixed(1) : Math.min(Math.round(value), 100)}%`;
  };

  /* What a review says, line by line. */
  const notesOf = (review) => {
    if (!review) return [];
    const { belongs, unknown, words } = review;
    const notes = [`The chance that the caption belongs to this photo is ${percent(belongs)}.`];
    const isJudged = words.some(({ chance }) => chance !== null);
    const doubtful = words.filter(({ instead }) => instead);
    if (!isJudged) notes[0] = "None of these words can be judged.";
    else if (!doubtful.length) notes.push("No word is doubtful.");
    for (const { word, chance, instead } of doubtful) {
      notes.push(`Doubtful: ${word}, ${percent(chance)}. The model would say ` +
        `${instead.join(", ")}.`);
    }
    if (isJudged && unknown.length) {
      notes.push(`Not judged, since the model does not know them: ${unknown.join(", ")}.`);
    }
    return notes;
  };

  /* Four cells and their shares for each pixel of an axis: a cubic B-spline, as in overlay.py.
     Beyond the outermost centres, which are moved by the offset, the edge cells are repeated. */
  const spline = (cells, pixels, offset) => Array.from({ length: pixels }, (_, pixel) => {
    const place = Math.min(Math.max(((pixel + 0.5) / pixels) * cells - 0.5 - offset, -0.5),
      cells - 0.5);
    const before = Math.floor(place);
    const x = place - before;
    const shares = [
      (1 - x) ** 3 / 6,
      (3 * x ** 3 - 6 * x ** 2 + 4) / 6,
      (-3 * x ** 3 + 3 * x ** 2 + 3 * x + 1) / 6,
      x ** 3 / 6,
    ];
    return shares.map((share, i) => [Math.min(Math.max(before - 1 + i, 0), cells - 1), share]);
  });

  /* A word's grid of bytes as a smooth map between zero and one. */
  const smooth = (base64, rows, columns, height, width, [down, right]) => {
    const cells = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const across = spline(columns, width, right);
    const along = spline(rows, height, down);
    const lines = Array.from({ length: rows }, (_, row) => Float32Array.from(across, (shares) =>
      shares.reduce((sum, [column, share]) => sum + share * cells[row * columns + column], 0)));
    const map = new Float32Array(height * width);
    along.forEach((shares, y) => {
      for (const [row, share] of shares) {
        const line = lines[row];
        for (let x = 0; x < width; x += 1) map[y * width + x] += share * line[x];
      }
    });
    const top = map.reduce((most, value) => Math.max(most, value), 1e-9);
    return map.map((value) => value / top);
  };

  const heat = Array.from({ length: 256 }, (_, level) => {
    const place = (level / 255) * (STOPS.length - 1);
    const before = Math.min(Math.floor(place), STOPS.length - 2);
    const colour = STOPS[before].map((low, i) =>
      Math.round(low + (STOPS[before + 1][i] - low) * (place - before)));
    return [...colour, 255];
  });
  const spotlight = Array.from({ length: 256 }, (_, level) =>
    [0, 0, 0, Math.round(255 * DARKEST * (1 - level / 255))]);
  const COLOURS = { heat, spotlight };

  /* The colours of all levels, the four bytes of each as one number. */
  const pixels = (colours) => new Uint32Array(Uint8ClampedArray.from(colours.flat()).buffer);
  const PIXELS = { heat: pixels(heat), spotlight: pixels(spotlight) };

  /* Titles of the maps in `captioning.maps`. */
  const NAMES = {
    "attention": "Attention",
    "evidence": "Evidence",
    "attention-evidence": "Attention \u00d7 evidence",
    "attention-fine-evidence": "Attention \u00d7 fine evidence",
    "gradient": "Gradient \u00d7 input",
    "grad-cam": "Grad-CAM",
    "occlusion": "Occlusion",
  };

  /* Layer and head of a map, by its name among `head_names` of `captioning.maps`. */
  const headOf = ({ map }) => {
    const [, layer, head] = /^(?:layer (\d+) )?(mean|head \d+)$/.exec(map) ?? [];
    return head && { layer, head };
  };
  const nameOf = (source) => {
    const found = headOf(source);
    if (!found) return NAMES[source.map] ?? source.map;
    return `Attention, ${found.layer ? `layer ${found.layer}, ` : ""}${found.head}`;
  };

  /* The options to choose a map: heads below the others, in a group per layer. */
  const mapChoices = (maps) => {
    const groups = new Map();
    const others = [];
    maps.forEach((source, index) => {
      const found = headOf(source);
      const option = make("option", { value: index },
        nameOf(source).replace(/^Attention, (.)/, (_, first) => first.toUpperCase()));
      if (!found) {
        others.push(option);
        return;
      }
      const label = found.layer ? `Attention, layer ${found.layer}` : "Attention, heads";
      if (!groups.has(label)) groups.set(label, make("optgroup", { label }));
      groups.get(label).append(option);
    });
    return [...others, ...groups.values()];
  };

  /* The photo with a map of each word laid over it. */
  class Pane {
    constructor({ photo, size, crop, offset }) {
      const [left, top, width, height] = crop;
      this.offset = offset;
      this.canvas = make("canvas", { "aria-hidden": "true" });
      this.image = make("img", { src: photo, draggable: "false" });
      const seen = make("div", { class: "seen" }, this.canvas);
      const places = { left: left / size[0], top: top / size[1],
        width: width / size[0], height: height / size[1] };
      for (const [name, share] of Object.entries(places)) seen.style[name] = `${100 * share}%`;
      this.stage = make("div", { class: "stage" }, this.image, seen);
      this.stage.style.setProperty("--shape", size[0] / size[1]);
      this.stage.style.aspectRatio = `${size[0]} / ${size[1]}`;
      this.label = make("figcaption", { class: "note" });
      this.root = make("figure", {}, this.stage, this.label);
    }

    /* Show a map: `source` has its name, its grid, and the weights of each word. */
    choose(source, text) {
      const { rows, columns, words } = source;
      this.source = source;
      this.image.alt = text;
      this.label.textContent = nameOf(source);
      this.canvas.width = columns * Math.max(4, Math.round(SIDE / columns));
      this.canvas.height = rows * Math.max(4, Math.round(SIDE / rows));
      this.maps = words.map(() => null);
      this.shown = null;
    }

    /* Fade from what is on the canvas to the map of a word. */
    draw(index, mode) {
      cancelAnimationFrame(this.frame);
      const map = this.map(index);
      const from = this.shown;
      const isStill = !from || from === map ||
        matchMedia("(prefers-reduced-motion: reduce)").matches;
      const began = performance.now();
      const step = (now) => {
        const part = isStill ? 1 : Math.min(Math.max((now - began) / FADE, 0), 1);
        this.shown = part === 1 ? map : map.map((value, i) => from[i] + part * (value - from[i]));
        this.paint(this.shown, mode);
        if (part < 1) this.frame = requestAnimationFrame(step);
      };
      step(began);
    }

    map(index) {
      const { words, rows, columns } = this.source;
      this.maps[index] ??= smooth(
        words[index].weights, rows, columns, this.canvas.height, this.canvas.width, this.offset);
      return this.maps[index];
    }

    paint(map, mode) {
      const context = this.canvas.getContext("2d");
      const picture = context.createImageData(this.canvas.width, this.canvas.height);
      const colours = PIXELS[mode];
      const painted = new Uint32Array(picture.data.buffer);
      for (let i = 0; i < map.length; i += 1) painted[i] = colours[Math.round(255 * map[i])];
      context.putImageData(picture, 0, 0);
    }
  }

  class View {
    constructor(element, data, { keys, isFixed, say }) {
      this.data = data;
      this.isFixed = isFixed;
      this.say = say;
      this.pinned = null; // the word chosen by focus, click, tap or play
      this.hovered = null; // the word under the mouse, which has precedence
      this.mode = "heat";
      this.asksSure = false; // whether the confidence is explained
      this.chosen = 0; // the map that is shown
      this.compared = data.captions[0].maps.length === 2 ? 1 : -1; // the map beside it, or -1
      this.gone = new AbortController();
      this.group = `attention-view-${(serial += 1)}`;
      this.build();
      element.replaceChildren(this.root);
      this.listen(keys || this.root);
      this.choose(0);
    }

    /* Remove timers and listeners, which would outlive the elements. */
    remove() {
      this.stop();
      this.gone.abort();
    }

    build() {
      const { title, size, crop, captions, functions } = this.data;
      const [, , width, height] = crop;
      this.panes = [new Pane(this.data), new Pane(this.data)];
      this.stages = make("div", { class: "stages" }, this.panes[0].root);
      const isWhole = width > 0.99 * size[0] && height > 0.99 * size[1];

      this.line = make("span", { class: "words", role: "group", dir: "auto",
        "aria-label": "Caption, word by word" });
      this.copier = make("button", { type: "button", class: "copy" }, "Copy");
      this.sure = make("button", { type: "button", class: "sure" });
      this.details = make("div", { class: "details", "aria-live": "polite" });
      this.player = make("button", { type: "button", class: "primary play" });
      this.strength = make("input", { type: "range", min: 0, max: 100, value: 80 });
      const modes = [["heat", "Heat map"], ["spotlight", "Spotlight"]].map(([mode, name]) => {
        const radio = make("input", { type: "radio", name: `${this.group}-mode`, value: mode });
        radio.checked = mode === this.mode;
        radio.addEventListener("change", () => { this.mode = mode; this.render(); });
        return make("label", {}, radio, make("span", {}, name));
      });
      this.peak = make("span", {});
      this.scale = make("div", { class: "scale", "aria-hidden": "true" });
      const legend = make("div", { class: "legend" },
        make("div", { class: "ends" }, make("span", {}, "0"), this.peak), this.scale,
        this.note = make("p", { class: "note" }));
      this.framed = isWhole ? "" : " The model saw the framed part of the photo.";

      this.root = make("div", { class: isWhole ? "attention-view whole" : "attention-view" });
      if (title) this.root.append(make("h1", {}, title));
      this.notes = make("ul", { class: "notes", "aria-label": "Review" });
      this.text = make("div", {}, make("p", { class: "caption" }, this.line, " ", this.copier),
        this.notes,
        make("div", { class: "controls" }, this.player, this.sure), this.details);
      this.root.append(this.stages, this.text,
        make("details", { class: "map-controls" }, make("summary", {}, "The map"),
          make("fieldset", { class: "modes" }, make("legend", { class: "hidden" }, "Show as"),
            ...modes),
          make("label", { class: "strength" }, make("span", {}, "Opacity"), this.strength),
          ...this.mapChoosers(), legend));
      this.choices = make("fieldset", { class: "captions" },
        make("legend", {}, "Captions and their scores"));
      this.radios = [];
      this.root.append(this.choices);
      const said = new Set(functions);
      captions.forEach(({ words }, index) => { // those that say something that no other says
        const isNew = words.map(({ word }) => !said.has(word.toLowerCase()));
        if (!index || isNew.includes(true)) this.offer(index);
        for (const { word } of words) said.add(word.toLowerCase());
      });
    }

    /* If there are several maps: the choice of the one to show, and of one beside it. */
    mapChoosers() {
      const { maps } = this.data.captions[0];
      if (maps.length < 2 || this.isFixed) return [];
      const chooser = (label, value, first, changed) => {
        const select = make("select", { class: "field" }, ...first, ...mapChoices(maps));
        select.value = value;
        select.addEventListener("change", () => {
          changed(Number(select.value));
          this.choose(this.data.captions.indexOf(this.caption), this.pinned);
        });
        return make("label", { class: "map" }, make("span", {}, label), select);
      };
      return [
        chooser("Map", this.chosen, [], (index) => { this.chosen = index; }),
        chooser("Beside it", this.compared, [make("option", { value: -1 }, "nothing")],
          (index) => { this.compared = index; }),
      ];
    }

    /* Let a caption be chosen among those of the photo. */
    offer(index) {
      const { caption, score } = this.data.captions[index];
      const radio = make("input", { type: "radio", name: `${this.group}-caption` });
      radio.addEventListener("change", () => this.choose(index));
      this.radios[index] = radio;
      this.choices.append(make("label", {}, radio,
        make("span", { dir: "auto" }, caption || "(no words)"),
        make("span", { class: "score" }, score?.toFixed(2).replace("-", "\u2212") ?? "")));
    }

    /* Show another caption, and focus one of its words. */
    go(index, place) {
      this.choose(index);
      this.words[place]?.focus();
    }

    add(caption, place) {
      this.go(this.data.captions.push(caption) - 1, place);
    }

    /* What continues the caption by another word, or ends it for null: a caption that is stored,
       else one that the model says; null where there is neither. */
    continuation(place, other) {
      const { captions } = this.data;
      const before = this.caption.words.slice(0, place).map(({ word }) => word);
      const begin = other === null ? before : [...before, other];
      const found = captions.findIndex(({ words }) => begin.every((each, i) =>
        each === words[i]?.word) && (other !== null || words.length === place));
      if (found >= 0) return () => this.go(found, begin.length - 1);
      if (!this.say || !begin.length) return null;
      return async () => {
        const given = begin.join(" ");
        const caption = await this.say(other === null ? { text: given } : { begin: given });
        if (caption) this.add(caption, begin.length - 1);
      };
    }

    listen(keys) {
      const { signal } = this.gone;
      this.player.addEventListener("click", () => this.toggle());
      this.copier.addEventListener("click", async () => {
        await copied(sentenceOf(this.caption));
        this.copier.textContent = "Copied";
        setTimeout(() => { this.copier.textContent = "Copy"; }, PACE);
      });
      this.strength.addEventListener("input", () => this.render());
      this.stages.addEventListener("click", () => this.clear());
      const leave = () => { this.hovered = null; this.render(); };
      // On the way to the alternatives a word stays, unless another one is pinned.
      this.line.addEventListener("pointerleave", () => { if (this.pinned !== null) leave(); });
      this.text.addEventListener("pointerleave", leave);
      for (const event of ["focus", "click"]) { // Safari focuses no buttons
        this.sure.addEventListener(event, () => { this.clear(true); });
      }
      keys.addEventListener("keydown", (event) => this.key(event), { signal });
      // Releasing the space bar would press a button, but here it means play.
      keys.addEventListener("keyup", (event) => {
        if (event.key === " " && this.words.includes(event.target)) event.preventDefault();
      }, { signal });
    }

    key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const isControl = !this.words.includes(event.target) &&
        event.target.closest?.("a, button, input, select, summary, textarea");
      if (event.key === "Escape") {
        this.clear();
      } else if (isControl) {
        return; // a control handles its own keys
      } else if (/^\p{Ll}$/u.test(event.key)) { // of a link to another page
        document.querySelector(`.others [aria-keyshortcuts="${event.key}"]`)?.click();
      } else if (event.key === " ") {
        if (!event.repeat) this.toggle();
        event.preventDefault();
      } else {
        const isLeftwards = getComputedStyle(this.line).direction === "rtl";
        const focused = this.words.indexOf(document.activeElement);
        const at = focused >= 0 ? focused : this.pinned ?? -1;
        const next = {
          ArrowRight: at + (isLeftwards ? -1 : 1),
          ArrowLeft: at + (isLeftwards ? 1 : -1),
          Home: 0,
          End: this.words.length - 1,
        }[event.key];
        if (event.key === "ArrowDown" && focused >= 0) { // to the alternatives
          this.details.querySelector("button")?.focus();
          event.preventDefault();
        }
        if (next === undefined || !this.words.length) return;
        this.words[Math.min(Math.max(next, 0), this.words.length - 1)].focus();
        event.preventDefault();
      }
    }

    /* Show another caption, or other maps of the same one. */
    choose(index, pinned = null) {
      this.stop();
      this.pinned = pinned;
      this.hovered = null;
      this.asksSure = false;
      this.caption = this.data.captions[index];
      if (!this.radios[index]) this.offer(index);
      this.radios[index].checked = true;
      this.choices.hidden = Object.keys(this.radios).length < 2;
      const { words, maps, review } = this.caption;
      const source = maps[this.chosen];
      this.even = 1 / (source.rows * source.columns);
      this.note.textContent = `${nameOf(source)} per region, scaled to each word\u2019s maximum; ` +
        `the mark is an even spread, ${percent(this.even)}.${this.framed}`;
      const { confidence } = this.caption; // missing where the model is not calibrated
      this.sure.textContent = confidence == null ? "" : `${percent(confidence)} sure`;
      this.sure.hidden = confidence == null;
      this.panes[0].choose(source, this.caption.caption);
      const [, beside] = this.panes;
      if (this.compared < 0) {
        beside.root.remove();
      } else {
        beside.choose(maps[this.compared], this.caption.caption);
        this.stages.append(beside.root);
      }
      this.stages.classList.toggle("compared", this.compared >= 0);
      const spaces = spacesOf(this.caption);
      this.words = words.map(({ word, probability }, place) => {
        const button = make("button", { type: "button", class: "bar", "aria-pressed": "false" },
          make("span", { class: "word" }, place ? word : capital(word)));
        if (place && !spaces[place]) button.classList.add("close");
        if (review?.words[place].instead) button.classList.add("doubtful");
        button.style.setProperty("--share", probability);
        button.addEventListener("focus", () => this.pin(place));
        button.addEventListener("click", () => this.pin(place)); // Safari focuses no buttons
        button.addEventListener("pointerenter", (event) => {
          if (event.pointerType === "touch") return;
          this.stop();
          this.hovered = place;
          this.render();
        });
        return button;
      });
      this.line.replaceChildren(...this.words.flatMap((word, place) => [spaces[place], word]),
        fullStop(this.caption.caption));
      if (!words.length) this.line.append(make("em", {}, "The caption has no words."));
      this.notes.replaceChildren(...notesOf(review).map((note) => make("li", {}, note)));
      this.copier.hidden = !words.length;
      this.player.disabled = !words.length;
      this.render();
    }

    pin(place, asksSure = false) {
      this.stop();
      this.pinned = place;
      this.asksSure = asksSure;
      this.render();
    }

    clear(asksSure = false) {
      this.hovered = null;
      this.pin(null, asksSure);
    }

    toggle() {
      if (this.timer) {
        this.stop();
      } else if (this.words.length) {
        this.hovered = null;
        const next = (this.pinned ?? -1) + 1;
        this.play(next < this.words.length ? next : 0);
      }
      this.render();
    }

    play(place) {
      this.pinned = place;
      this.timer = setTimeout(() => {
        if (place + 1 < this.words.length) this.play(place + 1);
        else this.stop();
        this.render();
      }, PACE);
      this.render();
    }

    stop() {
      clearTimeout(this.timer);
      this.timer = null;
    }

    render() {
      const index = this.hovered ?? this.pinned;
      this.root.dataset.word = index ?? "";
      this.root.dataset.mode = this.mode;
      this.root.classList.toggle("mapped", index !== null);
      this.root.style.setProperty("--strength", index === null ? 0 : this.strength.value / 100);
      this.player.textContent = this.timer ? "Pause" : "Play";
      this.player.classList.toggle("playing", Boolean(this.timer));
      this.words.forEach((word, i) => {
        word.setAttribute("aria-pressed", String(i === this.pinned));
        word.classList.toggle("shown", i === index);
      });
      const scale = COLOURS[this.mode].filter((_, level) => level % 15 === 0)
        .map(([red, green, blue, opacity]) => `rgb(${red} ${green} ${blue} / ${opacity / 255})`);
      this.scale.style.backgroundImage = `linear-gradient(to right, ${scale.join(", ")})`;
      const peak = index === null ? null : this.panes[0].source.words[index].peak;
      this.peak.textContent = peak === null ? "max" : percent(peak);
      this.scale.classList.toggle("marked", peak !== null);
      this.scale.style.setProperty("--mark", peak === null ? 0 : Math.min(this.even / peak, 1));
      this.describe(index);
      const shown = this.compared < 0 ? this.panes.slice(0, 1) : this.panes;
      for (const pane of shown) {
        if (index === null) pane.shown = null; // the next map appears at once
        else pane.draw(index, this.mode);
      }
    }

    /* The word's probability and those of its runners-up, or what the confidence means. */
    describe(index) {
      const described = `${this.data.captions.indexOf(this.caption)} ${index} ${this.asksSure}`;
      // Screen readers would read an unchanged description again.
      if (described === this.described) return;
      this.described = described;
      if (index === null) {
        const way = matchMedia("(hover: hover)").matches ? "Point at" : "Tap";
        this.details.replaceChildren(make("p", { class: "hint" }, this.asksSure
          ? `Of captions with this confidence, about ${percent(this.caption.confidence)} were at ` +
            "least as good as the median person\u2019s, on the photos of the calibration."
          : `${way} a word to see where it came from; the line below it is its probability.`));
        return;
      }
      const { words, review } = this.caption;
      const { word, probability, named, runners_up: others = [] } = words[index];
      const entries = [{ word, probability }, ...others].map((entry, rank) => {
        const go = rank ? this.continuation(index, entry.word) : null;
        const name = make(go ? "button" : "span", { class: "name", dir: "auto" },
          entry.word ?? make("em", {}, "end of caption"));
        if (go) {
          name.type = "button";
          name.title = "Continue the caption from here";
          name.addEventListener("click", go);
        }
        const item = make("li", { class: "bar" }, name, " ",
          make("span", { class: "probability" }, percent(entry.probability)));
        item.style.setProperty("--share", entry.probability);
        return item;
      });
      const often = named == null || review ? "" // function words name nothing
        : `; people name it too in about ${percent(named)} of such cases`;
      const sentences = [`The model gives \u201c${word}\u201d a probability of ` +
        `${percent(probability)} here${often}.`];
      const chance = review?.words[index].chance;
      if (review?.unknown.includes(word)) {
        sentences.splice(0, 1, `The model does not know \u201c${word}\u201d.`);
      } else if (chance === null) sentences.push("A review cannot judge this word.");
      else if (review) {
        sentences.push(`The chance that the photo bears it out is ${percent(chance)}.`);
      }
      const list = make("ol", { "aria-label": "Word and its alternatives" }, ...entries);
      if (list.querySelector("button")) sentences.push("Choose a coloured word to go on from it.");
      this.details.replaceChildren(list, make("p", { class: "hint" }, sentences.join(" ")));
    }
  }

  const mount = (element, data, options = {}) => {
    mounted.get(element)?.remove();
    const view = new View(element, data, options);
    mounted.set(element, view);
    return view;
  };

  for (const script of document.querySelectorAll("script[data-attention-view]")) {
    mount(script.parentElement, JSON.parse(script.textContent), { keys: document });
  }
  return { make, mount, nameOf, sentenceOf, spacesOf };
})();

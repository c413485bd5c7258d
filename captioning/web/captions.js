/* Beam search by a captioner's ONNX graphs, and what each word came from: as in the Python package,
   for one photo at a time. */

const [PAD, BOS, EOS, UNK] = [0, 1, 2, 3];
const SPACED = ["ptb", "treebank", "wordpunct", "tweet"]; // tokenizers of scripts with spaces
const RUNNERS_UP = 3;
const LEAST = 1e-4; // probabilities nearer to 0 or 1 count as so near

/* Scripts that write no spaces, as in captioning/data/tokenizers.py. The first ones have none
   beside words of other scripts either. */
const EAST_ASIAN = "\\u2e80-\\u2fd5\\u3005-\\u3007\\u3021-\\u312f\\u31a0-\\u31ff\\u3400-\\u4dbf" +
  "\\u4e00-\\u9fff\\uf900-\\ufaff\\uff66-\\uff9f\\u{20000}-\\u{3ffff}";
const UNSPACED = `${EAST_ASIAN}\\u0e01-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff` +
  "\\ua9e0-\\ua9fe\\uaa60-\\uaa7f";
const NEEDLESS = new RegExp(`(?<=[${UNSPACED}]\\p{M}?) (?=[${UNSPACED}])|` +
  `(?<=[${EAST_ASIAN}]\\p{M}?) | (?=[${EAST_ASIAN}])`, "gu");

export const joined = (words, tokenizer, joints) => {
  if (!SPACED.includes(tokenizer)) return words.join(" ").replace(NEEDLESS, "");
  const lower = words.map((word) => word.toLowerCase());
  const seam = ([one, two]) => joints[`${one} ${two}`] ?? joints[` ${two}`] ?? joints[`${one} `];
  return words.map((word, n) => (n ? seam(lower.slice(n - 1)) ?? " " : "") + word).join("");
};

/* The indices of the k largest numbers, the largest first. */
const largest = (numbers, k) => {
  const found = [];
  numbers.forEach((number, place) => {
    if (number === -Infinity || (found.length === k && number <= numbers[found[k - 1]])) return;
    let at = Math.min(found.length, k - 1);
    for (; at > 0 && numbers[found[at - 1]] < number; at -= 1) found[at] = found[at - 1];
    found[at] = place;
  });
  return found;
};

/* Log probabilities after their logits are divided by a temperature. */
const tempered = (logProbs, temperature) => {
  const logits = logProbs.map((each) => each / temperature);
  const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const sum = logits.reduce((total, each) => total + Math.exp(each - most), 0);
  return logits.map((each) => each - most - Math.log(sum));
};

/* The odds against something of this probability. */
const oddsAgainst = (probability) => 1 / Math.min(Math.max(probability, LEAST), 1 - LEAST) - 1;

const startingWith = (tensors, part) =>
  Object.entries(tensors).filter(([name]) => name.startsWith(part));

export class Captioner {
  /* `about` is captioner.json, `graphs` are sessions of the three graphs. */
  constructor(about, graphs, Tensor) {
    const [once, nonadjacent] = [new Set(about.once), new Set(about.nonadjacent)];
    Object.assign(this, { about, graphs, Tensor, once, nonadjacent });
  }

  /* The captions of an image's pixels (3, S, S) with their maps, the best first: those that a beam
     search finds, the best one that begins with given words, or the given text. */
  async captions(pixels, width, most, { begin, text }) {
    const given = this.tokens(text ?? begin ?? "");
    const { size } = this.about.preprocessing;
    const images = new this.Tensor("uint8", pixels, [1, 3, size, size]);
    const { annotations } = await this.graphs.encoder.run({ images });
    const now = await this.graphs.remember.run({ annotations });
    const memory = Object.fromEntries(startingWith(now, "memory."));
    const start = Object.fromEntries(startingWith(now, "state."));
    const found = text ? [{ tokens: [...given, EOS] }]
      : await this.search(memory, start, width, given);
    // As in Python, the confidence belongs to the search that it was calibrated on.
    const isCalibrated = this.about.calibrated && !begin && !text
      && width === this.about.search.width;
    const captions = [];
    for (const caption of found.slice(0, begin ? 1 : most)) {
      captions.push(await this.read(caption, memory, start, annotations, isCalibrated));
    }
    return captions;
  }

  /* The words of a text, which must be known. A word may have an ending such as 's; words of
     scripts without spaces follow each other, each as long as can be. */
  tokens(text) {
    const { words, tokenizer } = this.about;
    const known = new Map(words.map((word, token) => [word.toLowerCase(), token]));
    const isWhole = (rest) => !rest || !SPACED.includes(tokenizer) || /^('|n't$)/.test(rest);
    const found = [];
    for (const word of text.toLowerCase().replace(/\u2019/g, "'").match(/[^\s.,;:!?"]+/g) ?? []) {
      for (let rest = word; rest;) {
        let length = rest.length;
        while (length && !(known.get(rest.slice(0, length)) > UNK && isWhole(rest.slice(length)))) {
          length -= 1;
        }
        if (!length) throw new Error(`The model does not know \u201c${word}\u201d; use other words.`);
        found.push(known.get(rest.slice(0, length)));
        rest = rest.slice(length);
      }
    }
    if (text && !found.length) throw new Error("No words; give a caption.");
    return found;
  }

  /* One step for several captions of the photo: log probabilities, weights, evidence and state. */
  async step(tokens, state, memory) {
    const { step } = this.graphs;
    const read = new this.Tensor("int64", BigInt64Array.from(tokens, BigInt), [1, tokens.length]);
    const all = { tokens: read, ...state, ...memory };
    const needed = step.inputNames.map((name) => [name, all[name]]);
    const found = await step.run(Object.fromEntries(needed));
    const next = startingWith(found, "next.").map(
      ([name, part]) => [name.replace("next", "state"), part]);
    const rows = (tensor) => tokens.map((_, n) => {
      const length = tensor.data.length / tokens.length;
      return tensor.data.subarray(n * length, (n + 1) * length);
    });
    return {
      logProbs: rows(found.log_probs),
      weights: rows(found.weights),
      evidence: found.evidence && rows(found.evidence),
      state: Object.fromEntries(next),
    };
  }

  /* The state of these captions, which may occur several times. */
  following(state, captions) {
    return Object.fromEntries(Object.entries(state).map(([name, { type, data, dims }]) => {
      const length = data.length / dims[1];
      const kept = new data.constructor(captions.length * length);
      captions.forEach((caption, n) =>
        kept.set(data.subarray(caption * length, (caption + 1) * length), n * length));
      return [name, new this.Tensor(type, kept, [1, captions.length, ...dims.slice(2)])];
    }));
  }

  /* The captions that a beam search of this width finds, the best first: their tokens, the log
     probabilities of these, and the score. They begin with `given` tokens. */
  async search(memory, start, width, given) {
    const { max_length: longest, length_penalty: penalty } = this.about.search;
    let following = [{ tokens: [], logProbs: [], total: 0 }];
    let ended = [];
    let state = start;
    for (let length = 1; length <= longest && following.length; length += 1) {
      const last = following.map(({ tokens }) => tokens.at(-1) ?? BOS);
      const now = await this.step(last, state, memory);
      const continued = following.flatMap(({ tokens, logProbs, total }, parent) => {
        const isGiven = length <= given.length;
        const allowed = isGiven ? now.logProbs[parent]
          : this.allowed(now.logProbs[parent], tokens);
        const best = isGiven ? [given[length - 1]] : largest(allowed, width);
        return best.map((token) => ({
          parent,
          tokens: [...tokens, token],
          logProbs: [...logProbs, allowed[token]],
          total: total + allowed[token],
          score: (total + allowed[token]) / length ** penalty,
        }));
      });
      const best = [...continued, ...ended].sort((a, b) => b.score - a.score).slice(0, width);
      ended = best.filter(({ tokens }) => tokens.at(-1) === EOS);
      following = best.filter(({ tokens }) => tokens.at(-1) !== EOS);
      state = this.following(now.state, following.map(({ parent }) => parent));
    }
    return [...ended, ...following].sort((a, b) => b.score - a.score);
  }

  /* Log probabilities of the next word, minus infinity where the search forbids it. If no word is
     left, the caption may end. */
  allowed(logProbs, tokens) {
    const { min_length: shortest, no_repeat_ngram: n } = this.about.search;
    const found = logProbs.slice();
    for (const token of tokens) if (this.once.has(token)) found[token] = -Infinity;
    if (this.nonadjacent.has(tokens.at(-1))) found[tokens.at(-1)] = -Infinity;
    if (tokens.length < shortest) found[EOS] = -Infinity;
    if (n && tokens.length >= n) {
      const begun = tokens.slice(tokens.length - n + 1).join();
      for (let place = 0; place + n <= tokens.length; place += 1) {
        const isRepeated = tokens.slice(place, place + n - 1).join() === begun;
        if (isRepeated) found[tokens[place + n - 1]] = -Infinity;
      }
    }
    if (found.every((each) => each === -Infinity)) found[EOS] = logProbs[EOS];
    return found;
  }

  /* A caption as the view shows it: words with their probabilities, runners-up and maps. */
  async read({ tokens, logProbs: chosen, score }, memory, start, annotations, isCalibrated) {
    const { words, tokenizer, joints, calibration, search: { length_penalty: penalty } } = this.about;
    const written = tokens.filter((token) => token !== EOS);
    const steps = [];
    let state = start;
    for (const token of [BOS, ...written]) {
      const now = await this.step([token], state, memory);
      state = now.state;
      const [logProbs, weights] = [now.logProbs[0], now.weights[0]];
      steps.push({ logProbs, weights, evidence: now.evidence?.[0] });
    }
    const texts = written.map((token) => words[token]);
    const total = tokens.reduce((sum, token, place) => sum + steps[place].logProbs[token], 0);
    const kind = this.kind(annotations);
    const entry = (token, probability) =>
      ({ word: token === EOS ? null : words[token], probability });
    return {
      caption: joined(texts, tokenizer, joints),
      score: score ?? total / tokens.length ** penalty, // of given words
      ...(isCalibrated && tokens.at(-1) === EOS && {
        confidence: this.confidence(chosen, steps, tokens, kind),
      }),
      words: written.map((token, place) => {
        const likely = tempered(Float64Array.from(steps[place].logProbs),
          calibration?.temperature ?? 1);
        const others = largest(likely, RUNNERS_UP + 1).filter((each) => each !== token);
        return {
          ...entry(token, Math.exp(likely[token])),
          ...this.named(token, Math.exp(likely[token]), kind),
          runners_up: others.slice(0, RUNNERS_UP).map(
            (each) => entry(each, Math.exp(likely[each]))),
        };
      }),
      maps: this.maps(written.map((_, place) => ({
        attention: steps[place].weights, // computed before the word is known
        evidence: steps[place + 1].evidence, // of the word that was read
      }))),
    };
  }

  /* How good captions are in the data set whose photos look like this one; NaN if unknown. */
  kind({ data, dims: [, regions, width] }) {
    const { photo = [] } = this.about.calibration ?? {};
    return photo.length ? data.reduce((sum, each, place) =>
      sum + each * photo[place % width] / regions, photo[width]) : NaN;
  }

  /* Whether a word may name something visible. */
  isContent(token) {
    const { words, functions } = this.about;
    return token > UNK && !functions.includes(words[token].toLowerCase());
  }

  /* The chance that people name what a word names, or null for function words. */
  named(token, probability, kind) {
    const { named = [], means } = this.about.calibration ?? {};
    if (!named.length) return {};
    if (!this.isContent(token)) return { named: null };
    const [slope, intercept, ofKind = 0] = named;
    const shift = Number.isNaN(kind) ? 0 : ofKind * (kind - means["kind of photo"]);
    const odds = oddsAgainst(probability) ** slope;
    return { named: 1 / (1 + odds * Math.exp(-intercept - shift)) };
  }

  /* The chance that the caption is good: a logistic regression on features of it. */
  confidence(logProbs, steps, tokens, kind) {
    const { calibration: { means, weights, bias }, ranks } = this.about;
    const rarest = Math.max(...tokens.map((token) => ranks[token] ?? token - UNK), 0);
    const mean = (numbers) => numbers.reduce((sum, each) => sum + each, 0) / numbers.length;
    const contentLogOdds = logProbs.filter((_, place) => this.isContent(tokens[place]))
      .map((each) => -Math.log(oddsAgainst(Math.exp(each))));
    const entropies = logProbs.map((_, place) => steps[place].logProbs.reduce(
      (sum, each) => (each === -Infinity ? sum : sum - each * Math.exp(each)), 0));
    const features = {
      "mean log probability": mean(logProbs),
      "mean entropy": mean(entropies),
      "length": logProbs.length,
      "rarest word": Math.log(rarest + 1),
      "content words": contentLogOdds.length ? mean(contentLogOdds) : means["content words"],
      "kind of photo": Number.isNaN(kind) ? means["kind of photo"] : kind,
    };
    const logit = Object.entries(features).reduce(
      (sum, [name, feature]) => sum + weights[name] * (feature - means[name]), bias);
    return 1 / (1 + Math.exp(-logit));
  }

  /* The maps of all words in the form of `captioning.viewing.viewer`, without those that encode
     the photo again. */
  maps(ofWords) {
    const [rows, columns] = this.about.grid;
    const packed = (map, grids) => ({
      map,
      rows,
      columns,
      words: grids.map((shares) => {
        const peak = shares.reduce((most, share) => Math.max(most, share), 0);
        const bytes = Array.from(shares, (share) => Math.round(255 * share / (peak || 1)));
        return { peak, weights: btoa(String.fromCharCode(...bytes)) };
      }),
    });
    const attention = packed("attention", ofWords.map((word) => word.attention));
    if (!this.about.evidence) return [attention];
    const products = ofWords.map(({ attention: weights, evidence }) => {
      const product = Float64Array.from(weights, (weight, place) => weight * evidence[place]);
      const sum = product.reduce((total, share) => total + share, 0);
      return product.map((share) => share / sum);
    });
    return [packed("attention-evidence", products), attention,
      packed("evidence", ofWords.map((word) => word.evidence))];
  }
}

/* Searches and sorts the photos of an index. */
"use strict";

{
  const list = document.querySelector(".index ul");
  const cards = [...list.children];
  const [search, sorting, count] = ["input", "select", "output"].map((tag) =>
    document.querySelector(`.tools ${tag}`));

  const plain = (text) => text.normalize().toLocaleLowerCase()
    .replace(/[^\p{L}\p{M}\p{N}]+/gu, " ").trim();
  const texts = new Map(cards.map((card) => [card, ` ${plain(card.textContent)}`]));

  /* Whether a card has a word that begins so; some scripts have no spaces between words. */
  const has = (card, begin) =>
    texts.get(card).includes(/[\p{Ll}\p{N}]/u.test(begin) ? ` ${begin}` : begin);

  const value = ({ dataset }) => Number(dataset.value ?? -1);
  const { compare } = new Intl.Collator(undefined, { numeric: true });
  const orders = {
    highest: (a, b) => value(b) - value(a),
    lowest: (a, b) => value(a) - value(b),
    name: (a, b) => compare(a.dataset.name, b.dataset.name),
  };

  const show = () => {
    const begins = plain(search.value).split(" ");
    for (const card of cards) card.hidden = !begins.every((begin) => has(card, begin));
    const shown = cards.filter((card) => !card.hidden).length;
    count.textContent = shown < cards.length ? `${shown} of ${cards.length} photos` : "";
  };
  const sort = () => list.append(...cards.sort(orders[sorting.value]));

  search.addEventListener("input", show);
  sorting?.addEventListener("change", sort);
  // Browsers fill in again what was chosen before a reload.
  addEventListener("pageshow", () => { show(); if (sorting) sort(); });
}

/* Fills each caption's card with its view, and keeps what is decided in the browser's storage until it
   is saved as a table. */
"use strict";

{
  const STORE = "captioning review";
  const cards = [...document.querySelectorAll(".example")];
  const [count, hides, save] = ["output", "input", "button"].map((tag) =>
    document.querySelector(`.tools ${tag}`));
  const keyOf = ({ dataset }) => `${dataset.photo}\n${dataset.caption}`;
  const decisions = JSON.parse(localStorage.getItem(STORE) ?? "{}"); // by key
  let corrected; // the card whose caption is being corrected, which stays until that is done

  const show = () => {
    const decided = cards.filter((card) => decisions[keyOf(card)]).length;
    count.textContent = `${decided} of ${cards.length} decided`;
    save.disabled = !decided;
    for (const card of cards) {
      card.hidden = hides.checked && Boolean(decisions[keyOf(card)]) && card !== corrected;
    }
  };

  const decide = (card, form) => {
    const decision = form.elements.decision.value;
    form.elements.text.hidden = decision !== "correct";
    corrected = decision === "correct" ? card : undefined;
    decisions[keyOf(card)] = { decision, text: form.elements.text.value };
    localStorage.setItem(STORE, JSON.stringify(decisions));
    count.textContent = "";
    show();
  };

  /* A cell of a table, behind a space if a spreadsheet would take it for a formula. */
  const cell = (text) => `"${(/^[=+\-@]/.test(text) ? ` ${text}` : text).replaceAll('"', '""')}"`;

  const table = () => {
    const rows = cards.filter((card) => decisions[keyOf(card)]).map((card) => {
      const { decision, text } = decisions[keyOf(card)];
      const { photo, caption } = card.dataset;
      const kept = { accept: caption, correct: text, drop: "" }[decision];
      return [photo, kept, decision, caption];
    });
    const lines = [["file_name", "caption", "decision", "before"], ...rows];
    return lines.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
  };

  for (const card of cards) {
    const [view, script, form] = [".view", "script", "form"].map((name) => card.querySelector(name));
    attentionView.mount(view, JSON.parse(script.textContent));
    const { decision, text } = decisions[keyOf(card)] ?? {};
    if (decision) {
      form.elements.decision.value = decision;
      form.elements.text.value = text;
      form.elements.text.hidden = decision !== "correct";
    }
    form.addEventListener("input", () => decide(card, form));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      corrected = undefined;
      show();
    });
  }
  hides.addEventListener("change", show);
  save.addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob(["\ufeff", table()], { type: "text/csv" }));
    attentionView.make("a", { href: address, download: "decisions.csv" }).click();
    URL.revokeObjectURL(address);
  });
  show();
}

/* Fills each image of the page with its view; keys go to the view that has the focus. */
"use strict";

for (const script of document.querySelectorAll(".example > script")) {
  attentionView.mount(script.parentElement.querySelector(".view"), JSON.parse(script.textContent));
}

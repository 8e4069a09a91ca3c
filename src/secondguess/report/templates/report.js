(() => {
  "use strict";
  document.documentElement.classList.add("js");

  // The log-probabilities of a word: on hover, on focus and on touch, closed by Escape.
  const reading = document.getElementById("reading");
  let shown = null;
  const show = (word) => {
    shown = word;
    reading.textContent = word.dataset.reading;
    reading.hidden = false;
    place();
  };
  const place = () => {
    if (!shown) return;
    const word = shown.getBoundingClientRect();
    const bubble = reading.getBoundingClientRect();
    const space = document.documentElement.clientWidth - bubble.width - 8;
    reading.style.left = `${Math.max(8, Math.min(word.left, space))}px`;
    const above = word.top - bubble.height - 6;
    reading.style.top = `${above > 4 ? above : word.bottom + 6}px`;
  };
  const hide = () => {
    shown = null;
    reading.hidden = true;
  };
  const wordOf = (event) => event.target instanceof Element && event.target.closest(".word");
  for (const kind of ["pointerover", "focusin", "click"]) {
    document.addEventListener(kind, (event) => {
      // Scrolling to a word that the keyboard has reached may move the page under the pointer.
      const word = wordOf(event) || document.querySelector(".word:focus-visible");
      if (word) show(word);
      else if (kind !== "focusin") hide();
    });
  }
  document.addEventListener("focusout", (event) => { if (wordOf(event)) hide(); });
  document.addEventListener("scroll", place, { passive: true, capture: true });

  // One tab stop per answer; arrows go from word to word.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const word = wordOf(event);
    if (!word) return;
    const words = [...word.parentElement.querySelectorAll(".word")];
    const here = words.indexOf(word);
    const next = {
      ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: words.length - 1,
    }[event.key];
    if (next === undefined || !words[next]) return;
    event.preventDefault();
    word.tabIndex = -1;
    words[next].tabIndex = 0;
    words[next].focus();
  });

  for (const group of document.querySelectorAll(".answers")) {
    const update = () => {
      const chosen = group.querySelector("input[type=radio]:checked");
      if (chosen) group.dataset.colour = chosen.value;
    };
    group.addEventListener("change", update);
    // A browser may have kept the choice of an earlier visit.
    update();
  }

  for (const group of document.querySelectorAll(".walks")) {
    const range = group.querySelector("input[type=range]");
    const limit = group.querySelector("output");
    const select = group.querySelector("select");
    const hideRejected = group.querySelector(".hide-rejected");
    const views = [...group.querySelectorAll(".view")];
    const update = () => {
      limit.value = Number(range.value).toFixed(2);
      group.classList.toggle("without-rejected", hideRejected.checked);
      views.forEach((view, index) => {
        view.hidden = select.value !== "" && Number(select.value) !== index;
        let accepted = 0;
        let flagged = 0;
        for (const walk of view.querySelectorAll(".walk")) {
          const isAccepted = Number(walk.dataset.gap) <= Number(range.value);
          walk.classList.toggle("rejected", !isAccepted);
          accepted += isAccepted;
          flagged += isAccepted && walk.dataset.flagged === "1";
        }
        view.querySelector("[data-count=accepted]").textContent = accepted;
        view.querySelector("[data-count=flagged]").textContent = flagged;
      });
    };
    for (const control of [range, select, hideRejected]) control.addEventListener("input", update);
    update();
  }
})();

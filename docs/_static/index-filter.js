// Filters the equation index: by word, by verdict, by source. Nothing is stored or sent.
addEventListener("DOMContentLoaded", () => {
  const bar = document.querySelector(".index-filter");
  if (!bar) return;
  const [word, verdict, source] = bar.querySelectorAll("input, select");
  const rows = [...document.querySelectorAll(".equation-index tr[data-verdict]")];
  const show = () => {
    let shown = 0;
    for (const row of rows) {
      const fits =
        row.textContent.toLowerCase().includes(word.value.toLowerCase()) &&
        (!verdict.value || (row.dataset.verdict === verdict.value && row.dataset.source !== "new")) &&
        (!source.value || row.dataset.source.split(" ").includes(source.value));
      row.hidden = !fits;
      shown += fits;
    }
    for (const section of document.querySelectorAll(".equation-index tbody"))
      section.hidden = !section.querySelector("tr[data-verdict]:not([hidden])");
    bar.querySelector(".index-count").textContent = `${shown} of ${rows.length}`;
  };
  for (const control of [word, verdict, source]) control.addEventListener("input", show);
  show();
});

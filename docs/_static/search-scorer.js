// What a search shows first: chosen index entries, titles, names of objects, texts. Among equals the guide comes
// before sources and tables of figures, and a page that says the words more often before one that says them less.
var Scorer = {
  score: ([docname, title, anchor, description, score, filename, kind]) => {
    const query = new URLSearchParams(location.search).get("q") ?? "";
    const words = query.toLowerCase().split(/\W+/).filter((word) => word.length > 2);
    const text = (typeof SEARCH_TEXTS === "undefined" ? "" : SEARCH_TEXTS[docname] ?? "").toLowerCase();
    const often = words.map((word) => text.split(word).length - 1);
    const said = often.length ? Math.min(30, ...often) : 0; // as often as the rarest of the words
    const phrase = text.includes(query.toLowerCase().trim()) ? 10 : 0;
    const kinds = { index: 1000, title: 800, object: 400, text: 0 };
    if (kind === "object" && title.split(".").pop().toLowerCase() === query.toLowerCase().trim().split(".").pop())
      return 1100 + score; // the very name
    const whole = title.toLowerCase().includes(query.toLowerCase().trim()) ? 100 : 0;
    const places = [["source/", -100], ["guide/", 20], ["reference/", 10], ["theory/studies", -20]];
    const place = places.find(([start]) => docname.startsWith(start))?.[1] ?? 0;
    return (kinds[kind] ?? 0) + whole + place + said + phrase + score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// What a search shows first: chosen index entries, titles, names of objects, texts. Among equals the guide comes
// before sources and tables of figures.
var Scorer = {
  score: ([docname, title, anchor, description, score, filename, kind]) => {
    const query = new URLSearchParams(location.search).get("q") ?? "";
    const kinds = { index: 1000, title: 800, object: 400, text: 0 };
    if (kind === "object" && title.split(".").pop().toLowerCase() === query.toLowerCase().trim().split(".").pop())
      return 1100 + score; // the very name
    const whole = title.toLowerCase().includes(query.toLowerCase().trim()) ? 100 : 0;
    const places = [["source/", -100], ["guide/", 20], ["reference/", 10], ["theory/studies", -20]];
    const place = places.find(([start]) => docname.startsWith(start))?.[1] ?? 0;
    return (kinds[kind] ?? 0) + whole + place + score;
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

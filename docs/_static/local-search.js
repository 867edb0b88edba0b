// Where the site is opened as files, no page may fetch another: the search reads texts from a script instead.
if (location.protocol === "file:") {
  const base = new URL(".", location.href).pathname;
  window.fetch = (address) => {
    const page = new URL(address, location.href).pathname.slice(base.length).replace(/\.html$/, "");
    const main = document.createElement("div");
    main.setAttribute("role", "main");
    main.textContent = SEARCH_TEXTS[page] ?? "";
    return Promise.resolve(new Response(main.outerHTML));
  };
}

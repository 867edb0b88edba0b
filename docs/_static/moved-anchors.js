// Anchors of the reference page that was split by module: leads to the module's own page.
addEventListener("DOMContentLoaded", () => {
  const anchor = decodeURIComponent(location.hash.slice(1));
  if (!anchor || document.getElementById(anchor)) return;
  const plain = anchor.replace(/^module-/, "").replaceAll(/[._]/g, "-");
  for (const link of document.querySelectorAll('article a[href^="mathematics/"]'))
    if (plain.startsWith(link.textContent.replaceAll(/[._]/g, "-")))
      return location.replace(link.href.split("#")[0] + "#" + anchor);
});

// A picture opens by itself, where it can be made larger: on phones its letters are small.
addEventListener("DOMContentLoaded", () => {
  for (const picture of document.querySelectorAll("article img")) {
    const link = document.createElement("a");
    link.href = picture.src;
    picture.replaceWith(link);
    link.append(picture);
  }
});

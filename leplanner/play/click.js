// A click on a scene, as shares of its picture.
element.addEventListener("click", (event) => {
  const scene = event.target.closest("img.clickable");
  if (!scene) return;
  const box = scene.getBoundingClientRect();
  trigger("click", { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height });
});

// The theme looks for scrolling boxes when the window changes, so that the keyboard reaches them.
// A part that is unfolded may hold such a box.
document.addEventListener("toggle", () => window.dispatchEvent(new Event("resize")), true);

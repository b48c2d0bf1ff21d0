"use strict";
// The button goes from what the system prefers to the other, and back.
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
// What is wider than its frame says so.
const frames = [...document.querySelectorAll(".scroll")];
const mark = () => frames.forEach((frame) => {
  frame.parentElement.closest("figure").classList.toggle("wide", !frame.closest("details:not([open])") && frame.scrollWidth > frame.clientWidth + 1);
});
addEventListener("resize", mark);
document.querySelectorAll("details").forEach((details) => details.addEventListener("toggle", mark));
mark();

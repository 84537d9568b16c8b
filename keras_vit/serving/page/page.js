// Sends the image that is dropped, pasted or chosen, and shows what the server answers.
"use strict";

const part = (id) => document.getElementById(id);
// Labels come from strangers. A character without a shape could hide a part of one, or turn it
// round; it is shown as an escape, as `keras_vit.terminal.visible` does.
const unseen = /[\p{C}\p{Zl}\p{Zp}\u034f\u115f\u1160\u3164\uffa0]/gu;
const escaped = (letter) => {
  const code = letter.codePointAt(0);
  const [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(digits, "0")}`;
};
const visible = (text) => text.replace(unseen, escaped);
let latest = 0; // only the answer to the newest image is shown

async function post(path, image) {
  const headers = { "Content-Type": "application/octet-stream" }; // the server looks at the bytes
  const response = await fetch(path, { method: "POST", body: image, headers });
  if (response.ok) return response;
  const refusal = await response.json().catch(() => ({ detail: response.statusText }));
  const text = typeof refusal.detail === "string" ? refusal.detail : `status ${response.status}`;
  throw new Error(visible(text));
}

function row(label, probability) {
  const line = document.createElement("tr");
  const [name, number] = [document.createElement("td"), document.createElement("td")];
  const bar = document.createElement("meter");
  bar.value = probability;
  name.append(document.createTextNode(visible(label)), bar); // text of strangers is never markup
  number.textContent = `${(100 * probability).toFixed(1)} %`;
  number.className = "number";
  line.append(name, number);
  return line;
}

function shown(image, blob) {
  if (image.src) URL.revokeObjectURL(image.src);
  image.onload = () => image.classList.toggle("coarse", image.naturalWidth < 200);
  image.src = URL.createObjectURL(blob);
}

async function show(image) {
  const mine = ++latest;
  part("status").textContent = "The model computes …";
  try {
    const attention = post("attention", image).then((answer) => answer.blob(), () => null);
    const answer = await (await post("classify?top=5", image)).json();
    const picture = await attention;
    if (mine !== latest) return;
    part("labels").replaceChildren(
      ...answer.predictions[0].map(({ label, probability }) => row(label, probability)));
    shown(part("given"), image);
    part("seen").hidden = picture === null; // some models have no attention to show
    if (picture !== null) shown(part("attention"), picture);
    part("answer").hidden = false;
    part("status").textContent = "";
  } catch (error) {
    if (mine !== latest) return;
    part("answer").hidden = true;
    part("status").textContent = error.message;
  }
}

const first = (files) => { if (files.length) show(files[0]); };
part("file").addEventListener("change", (event) => {
  first(event.target.files);
  event.target.value = ""; // the same file may be chosen again
});
document.addEventListener("paste", (event) => first(event.clipboardData.files));
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    part("drop").classList.toggle("over", kind === "dragenter" || kind === "dragover");
    if (kind === "drop") first(event.dataTransfer.files);
  });
}

fetch("metadata").then((answer) => answer.json()).then((model) => {
  part("name").textContent = document.title = visible(model.name);
  const size = model.image_size ? ` of ${model.image_size.join("×")} pixels` : "";
  part("about").textContent = `${model.num_classes} classes; images${size}; ${model.backend}.`;
});

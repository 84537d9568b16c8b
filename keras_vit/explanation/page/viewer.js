"use strict";
// One viewer for each image: attention of a block and a head, drawn over the picture.

const colours = JSON.parse(document.getElementById("colours").textContent);

// Numbers of 8 bits that were packed by zlib and written in base64.
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function percent(share) {
  return (100 * share).toFixed(share < 0.0995 ? 1 : 0) + " %";
}

async function start(root) {
  const stored = JSON.parse(root.querySelector("script").textContent);
  const [canvas, legend] = root.querySelectorAll("canvas");
  const [block, head] = root.querySelectorAll("input");
  const [blockName, headName] = root.querySelectorAll("label span");
  const whole = root.querySelector("button");
  const [most, status] = root.querySelectorAll("output");
  const read = await unpacked(stored.read);
  const queries = stored.queries === null ? null : await unpacked(stored.queries.data);
  const [rows, columns] = stored.grid;
  const patches = rows * columns;
  const picture = root.querySelector("img");
  await picture.decode();
  let patch = null;

  // The values of the map on show and the weight that its brightest colour stands for.
  function map() {
    const b = Number(block.value);
    const stage = stored.stages[b];
    const h = Math.min(Number(head.value), stage.heads);
    if (patch === null || queries === null) {
      const k = stage.first + h;
      return [read.subarray(k * patches, (k + 1) * patches), stored.most[k]];
    }
    const place = stored.queries.blocks.indexOf(b);
    if (place < 0) return [null, 0];
    const each = stored.queries.heads ? stage.heads + 1 : 1;
    const k = (place * each + (stored.queries.heads ? h : 0)) * patches + patch;
    return [queries.subarray(k * patches, (k + 1) * patches), stored.queries.most[k]];
  }

  function draw() {
    const stage = stored.stages[Number(block.value)];
    head.max = stage.heads;
    const h = Math.min(Number(head.value), stage.heads);
    blockName.textContent = stage.name;
    headName.textContent = h === 0 ? "mean of " + stage.heads + " heads" : "head " + (h - 1);
    const [values, largest] = map();
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.globalAlpha = 1;
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    const high = stored.patch[0] * canvas.height, wide = stored.patch[1] * canvas.width;
    if (values !== null) {
      for (let k = 0; k < patches; k++) {
        const share = values[k] / 255; // the square root of the weight
        context.globalAlpha = 0.65 * share * share;
        context.fillStyle = colours[Math.round(255 * share * share)];
        context.fillRect((k % columns) * wide, Math.floor(k / columns) * high, wide, high);
      }
    }
    context.globalAlpha = 1;
    const one = canvas.width / 160;
    if (patch !== null) {
      const left = (patch % columns) * wide, top = Math.floor(patch / columns) * high;
      for (const [style, width] of [["#000", 3 * one], ["#fff", 1.4 * one]]) {
        context.strokeStyle = style;
        context.lineWidth = width;
        context.strokeRect(left, top, wide, high);
      }
    }
    whole.disabled = patch === null;
    most.textContent = values === null ? "" : percent(largest);
    const who = patch === null
      ? "what the head reads"
      : "the patch in row " + (Math.floor(patch / columns) + 1) + ", column " + (patch % columns + 1);
    let text = blockName.textContent + ", " + headName.textContent + ": attention of " + who + ".";
    if (values === null) text += " This report keeps no such attention for this block.";
    else {
      let best = 0;
      for (let k = 1; k < patches; k++) if (values[k] > values[best]) best = k;
      text += " Most, " + percent(largest) + ", is on row " + (Math.floor(best / columns) + 1) +
        ", column " + (best % columns + 1) + ".";
    }
    status.textContent = text;
  }

  function choose(row, column) {
    if (queries === null) return;
    row = Math.max(0, Math.min(rows - 1, row));
    column = Math.max(0, Math.min(columns - 1, column));
    patch = row * columns + column;
    draw();
  }

  block.addEventListener("input", draw);
  head.addEventListener("input", draw);
  whole.addEventListener("click", () => { patch = null; draw(); });
  canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    choose(Math.floor((event.clientY - box.top) / box.height / stored.patch[0]),
      Math.floor((event.clientX - box.left) / box.width / stored.patch[1]));
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Escape") { patch = null; draw(); }
    if (step === undefined) return;
    event.preventDefault();
    const from = patch === null ? [rows >> 1, columns >> 1] : [Math.floor(patch / columns) + step[0], patch % columns + step[1]];
    choose(from[0], from[1]);
  });
  const scale = legend.getContext("2d");
  for (let k = 0; k < 256; k++) {
    scale.fillStyle = colours[k];
    scale.fillRect(k * legend.width / 256, 0, legend.width / 256 + 1, legend.height);
  }
  draw();
  root.dataset.ready = "yes";
}

for (const root of document.querySelectorAll(".viewer")) start(root);

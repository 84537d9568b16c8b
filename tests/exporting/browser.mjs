// Runs exported models in the library that the format is written for.
//
//     node tests/exporting/browser.mjs IMAGE fp32 FOLDER...
//
// Each FOLDER holds a model, IMAGE is a PNG; fp32 is onnx/model.onnx, q8 model_quantized.onnx.
// A line of JSON a model: labels and scores of a classifier, or the outputs of an encoder.
import { readFileSync } from "node:fs";
import path from "node:path";
import { env, pipeline } from "@huggingface/transformers";

const [image, dtype, ...folders] = process.argv.slice(2);
env.allowRemoteModels = false;
for (const folder of folders.map((given) => path.resolve(given))) {
  env.localModelPath = path.dirname(folder);
  const config = JSON.parse(readFileSync(path.join(folder, "config.json")));
  const name = path.basename(folder);
  if (config.architectures[0].includes("ForImageClassification")) {
    const classify = await pipeline("image-classification", name, { dtype });
    console.log(JSON.stringify(await classify(image, { top_k: 10 })));
  } else {
    const extract = await pipeline("image-feature-extraction", name, { dtype });
    const outputs = [await extract(image)];
    if (config.model_type !== "clip") outputs.push(await extract(image, { pool: true }));
    console.log(JSON.stringify(outputs.map((tensor) => tensor.tolist())));
  }
}

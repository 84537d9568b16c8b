// Classifies an image with the library that the format is written for.
//
//     node tests/exporting/classify.mjs FOLDER IMAGE fp32
//
// FOLDER holds the exported model, IMAGE is a PNG; fp32 is onnx/model.onnx, q8 model_quantized.onnx.
import path from "node:path";
import { env, pipeline } from "@huggingface/transformers";

const [folder, image, dtype] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = path.dirname(path.resolve(folder));
const classify = await pipeline("image-classification", path.basename(folder), { dtype });
console.log(JSON.stringify(await classify(image, { top_k: 10 })));

// Reads a JSON array of texts and writes how many tokens of o200k_base each has.
import { readFileSync } from "node:fs";
import { countTokens } from "../tests/node_modules/gpt-tokenizer/esm/encoding/o200k_base.js";

console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map((text) => countTokens(text))));

// Turns oracle/vectors/dequant.json into dequant.txt, which the native tests can read without a JSON
// parser. `node tests/vectors/kernels/make-dequant-fixture.mjs` writes the file;
// tests/native/dequant-fixture.test.ts checks that the two agree.
//
// Lines:  block <type> <element count>          then one line of bytes (hex) and one of floats
//         dot <type> <element count> <dot>      then bytes of the weight row, and the activations
// Floats are the 8 hex digits of their bits.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const source = new URL('../oracle/vectors/dequant.json', import.meta.url);
const target = new URL('dequant.txt', import.meta.url);

function floatBits(value) {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, value);
  return view.getUint32(0).toString(16).padStart(8, '0');
}

export function dequantFixture() {
  const { types } = JSON.parse(readFileSync(source, 'utf8'));
  const lines = [];
  for (const [name, type] of Object.entries(types)) {
    for (const item of type.cases) {
      lines.push(`block ${name.toUpperCase()} ${item.floats.length}`, item.hex);
      lines.push(item.floats.map(floatBits).join(''));
    }
    if (type.vec_dot?.weights_hex === undefined) continue;
    const { n, weights_hex: weights, act, dot_float_act: dot } = type.vec_dot;
    lines.push(`dot ${name.toUpperCase()} ${n} ${floatBits(dot)}`, weights);
    lines.push(act.map(floatBits).join(''));
  }
  return `${lines.join('\n')}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(target, dequantFixture());

// Plays every script of this folder; COX_GOLDEN_REWRITE=1 writes down what the core answers now, and the
// reviewer reads the difference.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { playScript } from './core-script.ts';

const folder = fileURLToPath(new URL('.', import.meta.url));
const scripts = readdirSync(folder).filter((name) => name.endsWith('.txt'));

test.each(scripts)('%s is what the core answers', (name) => {
  const path = `${folder}${name}`;
  const expected = readFileSync(path, 'utf8');
  const answered = playScript(expected);
  if (process.env['COX_GOLDEN_REWRITE'] !== undefined) writeFileSync(path, answered);
  else expect(answered).toBe(expected);
});

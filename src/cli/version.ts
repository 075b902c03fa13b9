// The version of this build, as package.json states it.
import { readFileSync } from 'node:fs';

/** package.json lies two folders up from src/cli as well as from dist/cli. */
const manifest = JSON.parse(
  readFileSync(new URL('../../package.json', import.meta.url), 'utf8'),
) as {
  readonly version: string;
};

export const VERSION = manifest.version;

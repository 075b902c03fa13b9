// The committed message types are those that the .proto file gives.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../../..');
const FOLDER = 'coxswain/v1';

it('the generated types equal a fresh run of the generator', () => {
  const scratch = mkdtempSync(join(tmpdir(), 'cox-proto-'));
  const made = spawnSync(
    join(ROOT, 'node_modules/.bin/proto-loader-gen-types'),
    [
      ...['--longs=Number', '--enums=String', '--defaults', '--oneofs'],
      ...[
        '--importFileExtension=.ts',
        '-O',
        scratch,
        '-I',
        'proto',
        '--',
        `${FOLDER}/control.proto`,
      ],
    ],
    { cwd: ROOT },
  );
  expect(made.status, made.stderr.toString()).toBe(0);
  const committed = join(ROOT, 'src/wire/generated', FOLDER);
  const fresh = join(scratch, FOLDER);
  expect(readdirSync(committed).sort()).toEqual(readdirSync(fresh).sort());
  for (const name of readdirSync(fresh)) {
    expect(readFileSync(join(committed, name), 'utf8'), name).toBe(
      readFileSync(join(fresh, name), 'utf8'),
    );
  }
  rmSync(scratch, { recursive: true });
});

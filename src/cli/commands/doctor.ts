// cox doctor: looks at this host the way the other commands will, and says what to do about each fault.
import { constants } from 'node:fs';
import { access, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import type { CommandModule } from 'yargs';
import { hostKernels } from '../../base/addon.ts';
import { toCoxswainError } from '../../base/errors.ts';
import { modelsDirectory } from '../models-directory.ts';
import { CATALOGUE, DEFAULT_MODEL } from '../pull/catalogue.ts';
import { bytes, table } from '../table.ts';
import { EXIT_FAILED, print, printJson } from '../terminal.ts';

interface Finding {
  readonly check: string;
  readonly state: 'ok' | 'note' | 'bad';
  readonly detail: string;
}

interface DoctorArguments {
  readonly json: boolean;
}

type Check = () => Promise<Omit<Finding, 'check'>> | Omit<Finding, 'check'>;

const ok = (detail: string) => ({ state: 'ok', detail }) as const;
const note = (detail: string) => ({ state: 'note', detail }) as const;
const bad = (detail: string) => ({ state: 'bad', detail }) as const;

export const doctorCommand: CommandModule<object, DoctorArguments> = {
  command: 'doctor',
  describe: 'Check this host and say what to do about each fault',
  builder: (yargs) =>
    yargs.option('json', { type: 'boolean', default: false, describe: 'Result as JSON' }),
  handler: async (args) => {
    const findings: Finding[] = [];
    for (const [check, look] of Object.entries(CHECKS)) {
      findings.push({ check, ...(await examine(look)) });
    }
    if (args.json) printJson(findings);
    else print(table(findings.map(({ check, state, detail }) => [state, check, detail])));
    if (findings.some((finding) => finding.state === 'bad')) process.exitCode = EXIT_FAILED;
  },
};

async function examine(look: Check): Promise<Omit<Finding, 'check'>> {
  try {
    return await look();
  } catch (thrown) {
    return bad(toCoxswainError(thrown).message);
  }
}

const CHECKS: Readonly<Record<string, Check>> = {
  node: () => {
    const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
    const recent = major > 20 || (major === 20 && minor >= 17);
    return recent
      ? ok(`Node ${process.versions.node}`)
      : bad(`Node ${process.versions.node}: 20.17 or later is needed`);
  },
  engine: () => {
    const kernels = hostKernels();
    const text = `kernels ${kernels.isa} (available: ${kernels.available.join(', ')})`;
    return kernels.isa === 'scalar'
      ? note(`${text}: slow, no vector instructions in use`)
      : ok(text);
  },
  cores: () => ok(`${cpus().length} (${cpus()[0]?.model ?? 'unknown'})`),
  memory: () => ok(bytes(totalmem())),
  'shared memory': async () => {
    const probe = await mkdtemp('/dev/shm/cox-probe-').catch(() => null);
    if (probe === null) return note('/dev/shm cannot be written: ranks on this host will use tcp');
    await rm(probe, { recursive: true });
    return ok('ranks on this host can use shm');
  },
  loopback: () =>
    new Promise((resolve, reject) => {
      const server = createServer();
      server.once('error', reject);
      server.listen(0, '127.0.0.1', () =>
        server.close(() => resolve(ok('can listen on 127.0.0.1'))),
      );
    }),
  models: async () => {
    const directory = modelsDirectory(process.env);
    await mkdir(directory, { recursive: true });
    await access(directory, constants.W_OK);
    const file = CATALOGUE.find((entry) => entry.name === DEFAULT_MODEL)?.file ?? '';
    const there = await access(join(directory, file)).then(
      () => true,
      () => false,
    );
    return there
      ? ok(`${directory} holds the default model`)
      : note(`the default model is not there yet: cox pull ${DEFAULT_MODEL}`);
  },
};

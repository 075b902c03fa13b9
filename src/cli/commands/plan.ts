// cox plan: who would hold what, what a token costs on the wire, and why a topology is refused.
import type { CommandModule } from 'yargs';
import { type Plan, type PlannedRank, planModel } from '../../base/addon.ts';
import { topologyOf } from '../../config/derive.ts';
import { addSettings, type Flags, modelOf, readSettings, TOPOLOGY } from '../settings.ts';
import { bytes, table } from '../table.ts';
import { EXIT_FAILED, print, printJson } from '../terminal.ts';

const NAMES = [...TOPOLOGY, 'ranks'] as const;

export const planCommand: CommandModule<object, Flags> = {
  command: 'plan [model]',
  describe: 'Print who would hold what, and what a token costs on the wire',
  builder: (yargs) =>
    addSettings(yargs, NAMES)
      .positional('model', { type: 'string', describe: 'GGUF file or catalogue name' })
      .option('json', { type: 'boolean', default: false, describe: 'Result as JSON' }) as never,
  handler: async (flags) => {
    const config = readSettings(flags, NAMES);
    const plan = await planModel(await modelOf(flags, config), topologyOf(config));
    if (flags['json'] === true) printJson(plan);
    else print(describe(plan));
    if (plan.refused !== null) process.exitCode = EXIT_FAILED;
  },
};

function describe(plan: Plan): string {
  if (plan.refused !== null) return `refused: ${plan.refused}`;
  const { memory, per_token } = plan;
  const wire = `each token: ${per_token.collectives} collectives, ${bytes(per_token.wire_bytes)} on the wire`;
  const room = `memory: ${bytes(memory.installed)} installed, ${bytes(memory.admitted)} admitted for weights and cache, ${bytes(memory.needed)} needed`;
  const largest = `largest model of this kind that fits here: ${bytes(memory.largest_model)}`;
  return [table([HEADER, ...plan.ranks.map(row)]), wire, room, largest].join('\n');
}

const HEADER = [
  'rank',
  'stage',
  'layers',
  'heads',
  'kv heads',
  'ffn columns',
  'vocabulary',
  'weights',
  'kv per token',
];

function row(rank: PlannedRank): (string | number)[] {
  const { layers, heads, kv_heads, ffn_columns, vocab_rows } = rank.ranges;
  return [
    rank.rank,
    rank.stage,
    span(layers),
    span(heads),
    span(kv_heads),
    span(ffn_columns),
    span(vocab_rows),
    bytes(rank.weight_bytes),
    bytes(rank.kv_bytes_per_token),
  ];
}

/** A half-open range as people read it. */
function span([begin, end]: readonly [number, number]): string {
  return begin === end ? 'none' : `${begin}-${end - 1}`;
}

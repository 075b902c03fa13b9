// A small language for conversations with the coordinator's core. A script is lines of `> command` with the
// expected answer of each below it; `#` begins a comment. Answers are the effects, one a line:
//
//   > limits slots=2 blocks=16 ...      new core (block of 4 tokens)
//   > epoch 1 first=1                   epoch-ready
//   > arrive a prompt=1..6 max=3        generate; prompt is ids and ranges; choices= scope= stop=
//   > score s prompt=1..6 wants=0,5     score request; chunk=
//   > result rank=0 step=1 7 no         answer of a rank; outputs are `id finish`, `skip` or `scores`
//   > cancel a / stopped a 0 1 / failed rank=1 code=RANK_LOST / cluster-failed / drain / timer / now 50
//   > status
import { present } from '../../src/base/assert.ts';
import { isErrorCode } from '../../src/base/error-codes.ts';
import type {
  Finish,
  Output,
  OutputResult,
  Run,
  SlotOp,
  StepRecord,
} from '../../src/base/step-record.ts';
import { CoordinatorCore } from '../../src/coordinator/core/core.ts';
import type { CoreEffect, CoreEvent, CoreLimits } from '../../src/coordinator/core/events.ts';
import { generate, score } from '../sim/requests.ts';

const BLOCK_TOKENS = 4;

interface Words {
  readonly plain: readonly string[];
  readonly named: ReadonlyMap<string, string>;
}

/** Runs a script and returns it with the answers that the core gives now. */
export function playScript(script: string): string {
  const stage = new Stage();
  const lines: string[] = [];
  for (const line of script.split('\n')) {
    if (line.startsWith('>')) {
      lines.push(line, ...stage.play(line.slice(1).trim()));
    } else if (line.startsWith('#') || line.trim() === '') {
      lines.push(line);
    }
  }
  return lines.join('\n');
}

class Stage {
  private core = new CoordinatorCore({ queueMax: 4, blockTokens: BLOCK_TOKENS });
  private limits: CoreLimits = defaultLimits();
  private epoch = 0;
  private now = 0;

  play(command: string): string[] {
    const [verb = '', ...rest] = command.split(/\s+/);
    const words = parseWords(rest);
    switch (verb) {
      case 'limits':
        this.limits = { ...defaultLimits(), ...readLimits(words) };
        this.core = new CoordinatorCore({ queueMax: this.limits.queueMax, blockTokens: 4 });
        return [];
      case 'now':
        this.now = Number(words.plain[0]);
        return [];
      case 'status':
        return [describeStatus(this.core)];
      default:
        return this.core.step(this.eventOf(verb, words), this.now).flatMap(describe);
    }
  }

  private eventOf(verb: string, words: Words): CoreEvent {
    const { plain, named } = words;
    const id = plain[0] ?? '';
    switch (verb) {
      case 'epoch': {
        this.epoch = Number(id);
        const firstStep = numberOf(named, 'first', 1);
        return { type: 'epoch-ready', epoch: this.epoch, firstStep, limits: this.limits };
      }
      case 'arrive':
        return { type: 'request-arrived', request: generateOf(id, named) };
      case 'score':
        return { type: 'request-arrived', request: scoreOf(id, named) };
      case 'cancel':
        return { type: 'request-cancelled', id };
      case 'stopped': {
        const choice = Number(present(plain[1], 'choice'));
        return { type: 'choice-stopped', id, choice };
      }
      case 'result':
        return this.resultOf(plain, named);
      case 'failed': {
        const code = named.get('code') ?? '';
        return {
          type: 'rank-failed',
          epoch: numberOf(named, 'epoch', this.epoch),
          rank: numberOf(named, 'rank', 0),
          code: isErrorCode(code) ? code : 'INTERNAL',
          message: 'it died',
        };
      }
      case 'cluster-failed':
        return { type: 'cluster-failed', code: 'RANK_LOST', message: 'no way back' };
      case 'drain':
      case 'timer':
        return { type: verb };
      default:
        throw new Error(`unknown command ${verb}`);
    }
  }

  private resultOf(plain: readonly string[], named: ReadonlyMap<string, string>): CoreEvent {
    const outputs: OutputResult[] = [];
    for (let at = 0; at < plain.length; at += 1) {
      const word = plain[at] ?? '';
      if (word === 'skip') outputs.push({ want: 'token', skipped: true });
      else if (word === 'score') outputs.push(aScore());
      else {
        at += 1;
        outputs.push(aToken(Number(word), finishOf(plain[at] ?? '')));
      }
    }
    return {
      type: 'step-result',
      rank: numberOf(named, 'rank', 0),
      result: {
        epoch: numberOf(named, 'epoch', this.epoch),
        step: numberOf(named, 'step', 0),
        outputs,
        computeUs: numberOf(named, 'us', 1_000),
        waitUs: 0,
      },
    };
  }
}

function defaultLimits(): CoreLimits {
  return {
    slots: 4,
    kvBlocks: 32,
    context: 64,
    stages: 1,
    rankCount: 1,
    stepRowsMax: 32,
    queueMax: 4,
    liveReuse: true,
  };
}

function parseWords(rest: readonly string[]): Words {
  const plain = rest.filter((word) => !word.includes('='));
  const named = rest
    .filter((word) => word.includes('='))
    .map((word) => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)] as const);
  return { plain, named: new Map(named) };
}

function readLimits({ named }: Words): Partial<CoreLimits> {
  const { slots, kvBlocks, context, stages, rankCount, stepRowsMax, queueMax } = defaultLimits();
  return {
    slots: numberOf(named, 'slots', slots),
    kvBlocks: numberOf(named, 'blocks', kvBlocks),
    context: numberOf(named, 'context', context),
    stages: numberOf(named, 'stages', stages),
    rankCount: numberOf(named, 'ranks', rankCount),
    stepRowsMax: numberOf(named, 'rows', stepRowsMax),
    queueMax: numberOf(named, 'queue', queueMax),
  };
}

function generateOf(id: string, named: ReadonlyMap<string, string>) {
  const stop = named.get('stop');
  return generate(id, idsOf(named.get('prompt') ?? ''), numberOf(named, 'max', 4), {
    choices: numberOf(named, 'choices', 1),
    scope: named.get('scope') ?? '',
    sampler: { stopIds: stop === undefined ? [] : idsOf(stop) },
  });
}

function scoreOf(id: string, named: ReadonlyMap<string, string>) {
  const wants = new Map(
    idsOf(named.get('wants') ?? '').map((pos) => [pos, { want: 'score', target: null }] as const),
  );
  const chunk = named.get('chunk');
  const ids = idsOf(named.get('prompt') ?? '');
  return score(id, ids, wants, chunk === undefined ? null : Number(chunk));
}

/** `1..3,9` is 1,2,3,9. */
function idsOf(text: string): number[] {
  return text.split(',').flatMap((part) => {
    const [from, to] = part.split('..').map(Number);
    if (from === undefined) return [];
    return Array.from({ length: (to ?? from) - from + 1 }, (_, index) => from + index);
  });
}

function numberOf(named: ReadonlyMap<string, string>, name: string, otherwise: number): number {
  return Number(named.get(name) ?? otherwise);
}

function finishOf(word: string): Finish {
  return word === 'stop' || word === 'length' ? word : 'no';
}

function aToken(id: number, finish: Finish): OutputResult {
  return { want: 'token', skipped: false, id, finish, logprob: 0, top: [] };
}

function aScore(): OutputResult {
  return {
    want: 'score',
    skipped: false,
    argmax: 0,
    gap: 0,
    logsumexp: 0,
    targetLogit: 0,
    top: [],
  };
}

function describe(effect: CoreEffect): string[] {
  switch (effect.type) {
    case 'send-step':
      return describeRecord(effect.record);
    case 'request-started':
      return [`started ${effect.id} cached=${effect.cachedTokens}`];
    case 'tokens':
      return [`tokens ${effect.id}/${effect.choice}: ${effect.tokens.map(({ id }) => id).join()}`];
    case 'choice-finished':
      return [`choice ${effect.id}/${effect.choice} finished: ${effect.reason}`];
    case 'scores':
      return [`scores ${effect.id}: ${effect.scores.map(({ pos }) => pos).join()}`];
    case 'request-finished':
      return [`finished ${effect.id}`];
    case 'request-failed': {
      const { id, code, message, retryAfterSeconds } = effect;
      const retry = retryAfterSeconds === null ? '' : ` (retry after ${retryAfterSeconds} s)`;
      return [`failed ${id} ${code}: ${message}${retry}`];
    }
    case 'open-epoch':
      return [`open-epoch: ${effect.reason}`];
    case 'arm-timer':
      return [`arm-timer ${effect.at}`];
    case 'log':
      return [`log ${effect.level}: ${effect.message}`];
  }
}

function describeRecord({ step, slotOps, runs, outputs }: StepRecord): string[] {
  return [
    `step ${step}`,
    ...slotOps.map((op) => `  ${describeOp(op)}`),
    ...runs.map((run) => `  ${describeRun(run)}`),
    ...(outputs.length === 0 ? [] : [`  wants ${outputs.map(describeOutput).join(' ')}`]),
  ];
}

function describeOp(op: SlotOp): string {
  switch (op.kind) {
    case 'create':
      return `create slot ${op.slot} blocks [${op.blocks}] with ${op.tokens.length} tokens`;
    case 'append':
      return `append blocks [${op.blocks}] to slot ${op.slot}`;
    case 'truncate':
      return `truncate slot ${op.slot} to ${op.length}`;
    case 'drop':
      return `drop slot ${op.slot}`;
    case 'copy':
      return `copy ${op.rows} rows of block ${op.from} to ${op.to}`;
    case 'sampler':
      return `sampler of slot ${op.slot}: choice ${op.params.choice}, up to ${op.params.lengthMax}`;
  }
}

function describeRun({ slot, pos0, tokens }: Run): string {
  const what =
    'step' in tokens ? `output ${tokens.output} of step ${tokens.step}` : `ids ${tokens.join()}`;
  return `run slot ${slot} at ${pos0}: ${what}`;
}

function describeOutput(output: Output): string {
  return `${output.want}@${output.row}`;
}

function describeStatus({ status }: CoordinatorCore): string {
  const { state, requests, waiting, slots, kvBlocks, stepsInFlight } = status;
  const blocks = `${kvBlocks.used} used ${kvBlocks.cached} cached of ${kvBlocks.total}`;
  return `${state}: ${requests} requests, ${waiting} waiting, ${slots.used} slots, blocks ${blocks}, ${stepsInFlight} steps in flight`;
}

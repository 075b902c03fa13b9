// Step records and step results as bytes. The layout is a contract with the engine: it stands word by
// word in native/engine/step_record.h, and this file says nothing that file does not.
// Decoding trusts nothing: a malformed record is STEP_INVALID naming the word, before any allocation
// that its counts ask for. What a record *means* (slots that exist, rows in range) the engine checks.
import { assert } from '../base/assert.ts';
import type {
  Finish,
  Output,
  OutputResult,
  Run,
  SamplerParams,
  SlotOp,
  StepRecord,
  StepResult,
} from '../base/step-record.ts';
import { WordReader, WordWriter } from './words.ts';

const RECORD_MAGIC = 0x31535843; // "CXS1"
const RESULT_MAGIC = 0x31525843; // "CXR1"
const NO_TARGET = 0xffffffff;
const SAMPLER_RESERVED_WORDS = 6;
const FLAG_WANT_LOGPROB = 1;

const SLOT_OP = { create: 1, append: 2, truncate: 3, drop: 4, copy: 5, sampler: 6 } as const;
const WANT = { token: 1, score: 2, logits: 3 } as const;
const WANTS = ['token', 'score', 'logits'] as const;
const FINISHES: readonly Finish[] = ['no', 'stop', 'length'];

/**
 * Encodes records into one reused buffer. The returned view is valid until the next encode():
 * whoever keeps it longer copies it.
 */
export class StepEncoder {
  private readonly writer = new WordWriter();

  encode(record: StepRecord): Uint8Array {
    const { writer } = this;
    writer.clear();
    writer.u32(RECORD_MAGIC);
    writer.integer(record.epoch);
    writer.integer(record.step);
    writer.u32(record.slotOps.length);
    writer.u32(record.runs.length);
    writer.u32(record.outputs.length);
    for (const op of record.slotOps) writeSlotOp(writer, op);
    for (const run of record.runs) writeRun(writer, run);
    for (const output of record.outputs) writeOutput(writer, output);
    return writer.written();
  }
}

/** The record in bytes of its own. */
export function encodeStepRecord(record: StepRecord): Uint8Array {
  return new StepEncoder().encode(record).slice();
}

/** @throws CoxswainError STEP_INVALID naming the word at fault. */
export function decodeStepRecord(bytes: Uint8Array): StepRecord {
  const reader = new WordReader(bytes, 'step record');
  if (reader.u32('the mark CXS1') !== RECORD_MAGIC)
    throw reader.invalid('does not begin with CXS1');
  const epoch = reader.integer('the epoch');
  const step = reader.integer('the step');
  const opCount = reader.count('the count of slot ops', 2);
  const runCount = reader.count('the count of runs', 4);
  const outputCount = reader.count('the count of outputs', 3);
  const slotOps: SlotOp[] = [];
  for (let index = 0; index < opCount; index += 1) slotOps.push(readSlotOp(reader));
  const runs: Run[] = [];
  for (let index = 0; index < runCount; index += 1) runs.push(readRun(reader));
  const outputs: Output[] = [];
  for (let index = 0; index < outputCount; index += 1) outputs.push(readOutput(reader));
  reader.end();
  return { epoch, step, slotOps, runs, outputs };
}

/** The result in bytes of its own: what the engine sends, made by FakeEngine and tests. */
export function encodeStepResult(result: StepResult): Uint8Array {
  const writer = new WordWriter(256);
  writer.u32(RESULT_MAGIC);
  writer.integer(result.epoch);
  writer.integer(result.step);
  writer.u32(result.outputs.length);
  writer.u32(result.computeUs);
  writer.u32(result.waitUs);
  for (const output of result.outputs) writeOutputResult(writer, output);
  return writer.written().slice();
}

/** @throws CoxswainError STEP_INVALID naming the word at fault. */
export function decodeStepResult(bytes: Uint8Array): StepResult {
  const reader = new WordReader(bytes, 'step result');
  if (reader.u32('the mark CXR1') !== RESULT_MAGIC)
    throw reader.invalid('does not begin with CXR1');
  const epoch = reader.integer('the epoch');
  const step = reader.integer('the step');
  const countAt = reader.word;
  const outputCount = reader.u32('the count of outputs');
  const computeUs = reader.u32('compute_us');
  const waitUs = reader.u32('wait_us');
  reader.require('the outputs', outputCount * 2, countAt);
  const outputs: OutputResult[] = [];
  for (let index = 0; index < outputCount; index += 1) outputs.push(readOutputResult(reader));
  reader.end();
  return { epoch, step, outputs, computeUs, waitUs };
}

function writeSlotOp(writer: WordWriter, op: SlotOp): void {
  writer.u32(SLOT_OP[op.kind]);
  switch (op.kind) {
    case 'create':
      writer.u32(op.slot);
      writer.u32(op.tokens.length);
      writer.u32(op.blocks.length);
      writer.u32(op.tokens.length);
      writer.u32List(op.blocks);
      writer.u32List(op.tokens);
      return;
    case 'append':
      writer.u32(op.slot);
      writer.u32(op.blocks.length);
      writer.u32List(op.blocks);
      return;
    case 'truncate':
      writer.u32(op.slot);
      writer.u32(op.length);
      writer.u32(op.blockCount);
      return;
    case 'drop':
      writer.u32(op.slot);
      return;
    case 'copy':
      writer.u32(0);
      writer.u32(op.from);
      writer.u32(op.to);
      writer.u32(op.rows);
      return;
    case 'sampler':
      writer.u32(op.slot);
      writeSampler(writer, op.params);
      return;
  }
}

function writeSampler(writer: WordWriter, params: SamplerParams): void {
  writer.f32(params.temperature);
  writer.u32(params.topK);
  writer.f32(params.topP);
  writer.f32(params.minP);
  writer.f32(params.repetitionPenalty);
  writer.f32(params.presencePenalty);
  writer.f32(params.frequencyPenalty);
  writer.u64(params.seed);
  writer.u32(params.choice);
  writer.u32(params.promptLength);
  writer.u32(params.lengthMax);
  writer.u32(params.topLogprobs);
  writer.u32(params.wantLogprob ? FLAG_WANT_LOGPROB : 0);
  writer.u32(params.stopIds.length);
  writer.u32(params.bias.length);
  for (let word = 0; word < SAMPLER_RESERVED_WORDS; word += 1) writer.u32(0);
  writer.u32List(params.stopIds);
  for (const [id, bias] of params.bias) {
    writer.u32(id);
    writer.f32(bias);
  }
}

function writeRun(writer: WordWriter, run: Run): void {
  writer.u32(run.slot);
  writer.u32(run.pos0);
  if ('step' in run.tokens) {
    writer.u32(1);
    writer.u32(1);
    writer.integer(run.tokens.step);
    writer.u32(run.tokens.output);
    return;
  }
  writer.u32(run.tokens.length);
  writer.u32(0);
  writer.u32List(run.tokens);
}

function writeOutput(writer: WordWriter, output: Output): void {
  writer.u32(output.row);
  writer.u32(WANT[output.want]);
  writer.u32(output.want === 'score' ? (output.target ?? NO_TARGET) : 0);
}

function readSlotOp(reader: WordReader): SlotOp {
  const at = reader.word;
  const kind = reader.u32('a slot op');
  const slot = reader.u32('the slot of a slot op');
  switch (kind) {
    case SLOT_OP.create:
      return readCreate(reader, slot);
    case SLOT_OP.append: {
      const blockCount = reader.count('the blocks of an append', 1);
      return {
        kind: 'append',
        slot,
        blocks: reader.u32List('the blocks of an append', blockCount),
      };
    }
    case SLOT_OP.truncate: {
      const length = reader.u32('the length of a truncate');
      return { kind: 'truncate', slot, length, blockCount: reader.u32('the blocks of a truncate') };
    }
    case SLOT_OP.drop:
      return { kind: 'drop', slot };
    case SLOT_OP.copy: {
      const from = reader.u32('the source of a copy');
      const to = reader.u32('the target of a copy');
      return { kind: 'copy', from, to, rows: reader.u32('the rows of a copy') };
    }
    case SLOT_OP.sampler:
      return { kind: 'sampler', slot, params: readSampler(reader) };
    default:
      throw reader.invalid(`has the unknown slot op ${kind} at word ${at}`);
  }
}

function readCreate(reader: WordReader, slot: number): SlotOp {
  const at = reader.word;
  const length = reader.u32('the length of a create');
  const blockCount = reader.count('the blocks of a create', 1);
  const tokenCount = reader.count('the tokens of a create', 1);
  if (tokenCount !== length) {
    throw reader.invalid(
      `creates slot ${slot} of ${length} tokens with ${tokenCount} ids (word ${at})`,
    );
  }
  const blocks = reader.u32List('the blocks of a create', blockCount);
  return {
    kind: 'create',
    slot,
    blocks,
    tokens: reader.u32List('the tokens of a create', tokenCount),
  };
}

function readSampler(reader: WordReader): SamplerParams {
  const temperature = reader.f32('temperature');
  const topK = reader.u32('top_k');
  const topP = reader.f32('top_p');
  const minP = reader.f32('min_p');
  const repetitionPenalty = reader.f32('repetition');
  const presencePenalty = reader.f32('presence');
  const frequencyPenalty = reader.f32('frequency');
  const seed = reader.u64('seed');
  const choice = reader.u32('choice');
  const promptLength = reader.u32('prompt_length');
  const lengthMax = reader.u32('length_max');
  const topLogprobs = reader.u32('top_logprobs');
  const flags = reader.u32('flags');
  const stopCount = reader.count('stop_count', 1);
  const biasCount = reader.count('bias_count', 2);
  reader.u32List('the reserved words of a sampler', SAMPLER_RESERVED_WORDS);
  const stopIds = reader.u32List('the stop ids', stopCount);
  reader.require('the biases', biasCount * 2, reader.word);
  const bias: (readonly [number, number])[] = [];
  for (let index = 0; index < biasCount; index += 1) {
    bias.push([reader.u32('the id of a bias'), reader.f32('a bias')]);
  }
  return {
    temperature,
    topK,
    topP,
    minP,
    repetitionPenalty,
    presencePenalty,
    frequencyPenalty,
    seed,
    choice,
    promptLength,
    lengthMax,
    topLogprobs,
    wantLogprob: (flags & FLAG_WANT_LOGPROB) !== 0,
    stopIds,
    bias,
  };
}

function readRun(reader: WordReader): Run {
  const slot = reader.u32('the slot of a run');
  const pos0 = reader.u32('the position of a run');
  const at = reader.word;
  const rows = reader.u32('the rows of a run');
  const source = reader.u32('the source of a run');
  if (source === 0) return { slot, pos0, tokens: reader.u32List('the tokens of a run', rows) };
  if (source !== 1) throw reader.invalid(`has the unknown run source ${source} at word ${at + 1}`);
  if (rows !== 1) throw reader.invalid(`takes ${rows} rows from one output at word ${at}`);
  const step = reader.integer('the source step of a run');
  return { slot, pos0, tokens: { step, output: reader.u32('the source output of a run') } };
}

function readOutput(reader: WordReader): Output {
  const row = reader.u32('the row of an output');
  const at = reader.word;
  const want = WANTS[reader.u32('the want of an output') - 1];
  const argument = reader.u32('the argument of an output');
  switch (want) {
    case 'token':
    case 'logits':
      return { row, want };
    case 'score':
      return { row, want, target: argument === NO_TARGET ? null : argument };
    default:
      throw reader.invalid(`has an unknown want at word ${at}`);
  }
}

function writeOutputResult(writer: WordWriter, output: OutputResult): void {
  writer.u32(WANT[output.want]);
  writer.u32(output.skipped ? 1 : 0);
  if (output.skipped) return;
  switch (output.want) {
    case 'token':
      writer.u32(output.id);
      writer.u32(FINISHES.indexOf(output.finish));
      writer.f32(output.logprob);
      writePairs(writer, output.top);
      return;
    case 'score':
      writer.u32(output.argmax);
      writer.f32(output.gap);
      writer.f32(output.logsumexp);
      writer.f32(output.targetLogit);
      writePairs(writer, output.top);
      return;
    case 'logits':
      writer.u32(output.logits.length);
      writer.f32List(output.logits);
      return;
  }
}

function readOutputResult(reader: WordReader): OutputResult {
  const at = reader.word;
  const want = WANTS[reader.u32('the want of a result') - 1];
  if (want === undefined) throw reader.invalid(`has an unknown want at word ${at}`);
  const status = reader.u32('the status of a result');
  if (status > 1) throw reader.invalid(`has the unknown status ${status} at word ${at + 1}`);
  if (status === 1) return { want, skipped: true };
  switch (want) {
    case 'token': {
      const id = reader.u32('a token id');
      const finish = FINISHES[reader.u32('the finish of a token')];
      if (finish === undefined) throw reader.invalid(`has an unknown finish at word ${at + 3}`);
      const logprob = reader.f32('a logprob');
      return { want, skipped: false, id, finish, logprob, top: readPairs(reader) };
    }
    case 'score': {
      const argmax = reader.u32('an argmax');
      const gap = reader.f32('a gap');
      const logsumexp = reader.f32('a logsumexp');
      const targetLogit = reader.f32('a target logit');
      const top = readPairs(reader);
      return { want, skipped: false, argmax, gap, logsumexp, targetLogit, top };
    }
    case 'logits': {
      const count = reader.count('the logits', 1);
      return { want, skipped: false, logits: reader.f32List('the logits', count) };
    }
  }
}

function writePairs(writer: WordWriter, pairs: readonly (readonly [number, number])[]): void {
  writer.u32(pairs.length);
  for (const [id, value] of pairs) {
    assert(id !== NO_TARGET, 'a top list holds token ids');
    writer.u32(id);
    writer.f32(value);
  }
}

function readPairs(reader: WordReader): (readonly [number, number])[] {
  const count = reader.count('a top list', 2);
  const pairs: (readonly [number, number])[] = [];
  for (let index = 0; index < count; index += 1) {
    pairs.push([reader.u32('an id of a top list'), reader.f32('a value of a top list')]);
  }
  return pairs;
}

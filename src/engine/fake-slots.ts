// The slots of FakeEngine: the same table and the same checks as native/engine/slots.h and plan_step.h, so
// that a record which the native engine would refuse is refused here, with STEP_INVALID.
import { present } from '../base/assert.ts';
import { CoxswainError } from '../base/errors.ts';
import type { SamplerParams, SlotOp } from '../base/step-record.ts';

export interface FakeSlot {
  readonly tokens: number[];
  blocks: number[];
  sampler: SamplerParams | null;
}

export interface FakeLimits {
  readonly slots: number;
  readonly blocks: number;
  readonly context: number;
  readonly blockTokens: number;
  readonly vocab: number;
}

export class FakeSlots {
  private readonly limits: FakeLimits;
  private readonly slots = new Map<number, FakeSlot>();
  private readonly holders: Int32Array;

  constructor(limits: FakeLimits) {
    this.limits = limits;
    this.holders = new Int32Array(limits.blocks);
  }

  apply(op: SlotOp): void {
    switch (op.kind) {
      case 'create':
        this.create(op);
        break;
      case 'append':
        for (const block of op.blocks) this.hold(this.get(op.slot, 'append'), block);
        break;
      case 'truncate':
        this.truncate(op);
        break;
      case 'drop':
        this.releaseFrom(this.get(op.slot, 'drop'), 0);
        this.slots.delete(op.slot);
        break;
      case 'copy':
        this.checkCopy(op);
        break;
      case 'sampler':
        this.get(op.slot, 'sampler').sampler = op.params;
        break;
    }
  }

  get(slot: number, what: string): FakeSlot {
    const found = this.slots.get(slot);
    if (found === undefined) throw invalid(`${what}: slot ${slot} does not exist`);
    return found;
  }

  /** Appends a row's token at its position, which must be the slot's next, in a block of its own. */
  appendToken(index: number, position: number, token: number): void {
    const slot = this.get(index, 'run');
    this.checkId(token, 'run');
    const { length } = slot.tokens;
    if (position !== length) {
      throw invalid(`run: position ${position}, but slot ${index} has ${length} tokens`);
    }
    if (position >= this.limits.context) {
      throw invalid(`run: position ${position} exceeds the context of ${this.limits.context}`);
    }
    const block = slot.blocks[Math.floor(position / this.limits.blockTokens)];
    if (block === undefined) {
      throw invalid(`run: slot ${index} has no block for position ${position}`);
    }
    if (this.holders[block] !== 1) {
      throw invalid(`run: block ${block} of slot ${index} is shared and must be copied first`);
    }
    slot.tokens.push(token);
  }

  /** Slot, length and blocks of every slot, for the ranks to compare. */
  digest(): string {
    return [...this.slots].map(([id, slot]) => `${id}:${slot.tokens.length}:${slot.blocks}`).join();
  }

  private create(op: Extract<SlotOp, { kind: 'create' }>): void {
    const { slot, blocks, tokens } = op;
    const { slots, context, blockTokens } = this.limits;
    if (slot >= slots) throw invalid(`create: slot ${slot} is beyond the engine's ${slots}`);
    if (this.slots.has(slot)) throw invalid(`create: slot ${slot} already exists`);
    if (tokens.length > context) {
      throw invalid(`create: length ${tokens.length} exceeds the context of ${context}`);
    }
    if (blocks.length * blockTokens < tokens.length) {
      throw invalid(`create: ${blocks.length} blocks do not hold ${tokens.length} tokens`);
    }
    for (const token of tokens) this.checkId(token, 'create');
    const created: FakeSlot = { tokens: [...tokens], blocks: [], sampler: null };
    for (const block of blocks) this.hold(created, block);
    this.slots.set(slot, created);
  }

  private truncate({
    slot: index,
    length,
    blockCount,
  }: Extract<SlotOp, { kind: 'truncate' }>): void {
    const slot = this.get(index, 'truncate');
    if (length > slot.tokens.length) {
      throw invalid(`truncate: slot ${index} has ${slot.tokens.length} tokens, not ${length}`);
    }
    if (blockCount > slot.blocks.length || blockCount * this.limits.blockTokens < length) {
      throw invalid(`truncate: ${blockCount} blocks for ${length} tokens of slot ${index}`);
    }
    slot.tokens.length = length;
    this.releaseFrom(slot, blockCount);
  }

  private checkCopy({ from, to, rows }: Extract<SlotOp, { kind: 'copy' }>): void {
    const { blocks, blockTokens } = this.limits;
    if (from >= blocks || to >= blocks || from === to) {
      throw invalid(`copy: from block ${from} to ${to} of ${blocks}`);
    }
    if (rows > blockTokens) throw invalid(`copy: ${rows} rows in a block of ${blockTokens}`);
    if ((this.holders[to] ?? 0) > 1) throw invalid(`copy: block ${to} is shared`);
  }

  private hold(slot: FakeSlot, block: number): void {
    if (block >= this.limits.blocks) {
      throw invalid(`block ${block} is beyond the engine's ${this.limits.blocks}`);
    }
    this.holders[block] = present(this.holders[block], 'in range') + 1;
    slot.blocks.push(block);
  }

  private releaseFrom(slot: FakeSlot, keep: number): void {
    for (const block of slot.blocks.slice(keep)) {
      this.holders[block] = present(this.holders[block], 'held blocks are in range') - 1;
    }
    slot.blocks = slot.blocks.slice(0, keep);
  }

  private checkId(id: number, what: string): void {
    if (id < this.limits.vocab) return;
    throw invalid(`${what}: token id ${id} is not in the vocabulary of ${this.limits.vocab}`);
  }
}

export function invalid(message: string): CoxswainError {
  return new CoxswainError('STEP_INVALID', message);
}

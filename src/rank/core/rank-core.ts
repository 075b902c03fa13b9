// A rank's state machine: which share it holds, which epoch it obeys, which step comes next.
// Invariants: the highest epoch ever accepted only grows and is durable before its links are opened;
// an epoch number is never obeyed under two incarnations; steps go to the engine in sequence without a
// gap; after a failure or a fence no step and no result passes until the next epoch. Slots are empty at
// the start of every epoch, so there is nothing to list in Ready but the links.
import { isErrorCode } from '../../base/error-codes.ts';
import type { EngineEvent, EngineFacts } from '../../engine/engine.ts';
import type { EpochOpening, RankAssignment, RankEffect, RankEvent } from './events.ts';

/** What survives the process: the highest epoch accepted and who opened it. */
export interface PersistedEpoch {
  readonly epoch: number;
  readonly incarnation: string;
}

type EpochState =
  | { readonly kind: 'none' }
  | { readonly kind: 'opening'; readonly opening: EpochOpening }
  | { readonly kind: 'open'; readonly epoch: number; nextStep: number; nextResult: number }
  /** Failed or fenced: obeys nothing until a new epoch. */
  | { readonly kind: 'closed'; readonly epoch: number };

type ShareState =
  | { readonly kind: 'none' }
  | { readonly kind: 'loading'; readonly assignment: RankAssignment }
  | { readonly kind: 'loaded'; readonly assignment: RankAssignment; readonly facts: EngineFacts };

export class RankCore {
  private epochMax: PersistedEpoch;
  private share: ShareState = { kind: 'none' };
  private epoch: EpochState = { kind: 'none' };
  private attached: boolean = false;

  constructor(persisted: PersistedEpoch) {
    this.epochMax = persisted;
  }

  step(event: RankEvent): RankEffect[] {
    switch (event.type) {
      case 'attached':
        return this.onAttached();
      case 'detached':
        return this.onDetached(event.reason);
      case 'assign':
        return this.onAssign(event.assignment);
      case 'engine-loaded':
        return this.onLoaded(event.facts);
      case 'engine-load-failed':
        this.share = { kind: 'none' };
        return [failed(0, 0, event.code, event.message)];
      case 'open':
        return this.onOpen(event.opening);
      case 'engine-opened':
        return this.onOpened(event);
      case 'engine-open-failed':
        return this.onOpenFailed(event);
      case 'step':
        return this.onStep(event);
      case 'engine-event':
        return this.onEngineEvent(event.event);
      case 'fence':
        return this.onFence(event);
      case 'lease-expired':
        return this.onLeaseExpired();
      case 'shutdown':
        return [...this.close(event.reason), { type: 'stop', reason: event.reason }];
    }
  }

  private onAttached(): RankEffect[] {
    const effects = this.close('a new control stream replaced the old one');
    this.attached = true;
    effects.push({ type: 'send-hello', epochMax: this.epochMax.epoch });
    return effects;
  }

  private onDetached(reason: string): RankEffect[] {
    if (!this.attached) return [];
    this.attached = false;
    return this.close(reason);
  }

  /** The same share again (a new stream to the same process) is answered at once. */
  private onAssign(assignment: RankAssignment): RankEffect[] {
    const { share } = this;
    if (share.kind !== 'none' && sameShare(share.assignment, assignment)) {
      if (share.kind === 'loading') return [];
      return [{ type: 'send-loaded', facts: share.facts, planHash: assignment.planHash }];
    }
    const effects = this.close('another share was assigned');
    this.share = { kind: 'loading', assignment };
    effects.push({ type: 'load-engine', assignment });
    return effects;
  }

  private onLoaded(facts: EngineFacts): RankEffect[] {
    const { share } = this;
    if (share.kind !== 'loading') return [];
    this.share = { kind: 'loaded', assignment: share.assignment, facts };
    if (!this.attached) return [];
    return [{ type: 'send-loaded', facts, planHash: share.assignment.planHash }];
  }

  private onOpen(opening: EpochOpening): RankEffect[] {
    const refusal = this.refusalOf(opening);
    if (refusal !== null) {
      return [
        failed(opening.epoch, 0, 'EPOCH_FENCED', refusal),
        log('warn', 'epoch refused', { epoch: opening.epoch, epoch_max: this.epochMax.epoch }),
      ];
    }
    if (this.share.kind !== 'loaded') {
      const message = `epoch ${opening.epoch} was opened before this rank loaded its share`;
      return [failed(opening.epoch, 0, 'HANDSHAKE_REFUSED', message)];
    }
    const { epoch, incarnation, links, firstStep, openTimeoutMs } = opening;
    this.epochMax = { epoch, incarnation };
    this.epoch = { kind: 'opening', opening };
    const { rank } = this.share.assignment;
    return [
      { type: 'fence-engine', reason: `epoch ${epoch} begins` },
      { type: 'persist-epoch', epoch, incarnation },
      {
        type: 'open-engine',
        spec: { epoch, incarnation, rank, links, firstStep, openTimeoutMs },
      },
    ];
  }

  /** Lower epochs, equal ones of another coordinator, and one that is already in use. */
  private refusalOf({ epoch, incarnation }: EpochOpening): string | null {
    const max = this.epochMax;
    if (epoch < max.epoch) {
      return `epoch ${epoch} is below ${max.epoch}, which this rank has accepted; open a higher one`;
    }
    if (epoch > max.epoch) return null;
    if (incarnation !== max.incarnation) {
      return `epoch ${epoch} belongs to another coordinator start; open a higher one`;
    }
    return `epoch ${epoch} has been opened before; open a higher one`;
  }

  private onOpened(event: Extract<RankEvent, { type: 'engine-opened' }>): RankEffect[] {
    const { epoch: state } = this;
    if (state.kind !== 'opening' || state.opening.epoch !== event.epoch) return [];
    const { epoch, firstStep } = state.opening;
    this.epoch = { kind: 'open', epoch, nextStep: firstStep, nextResult: firstStep };
    return [
      { type: 'send-ready', epoch, links: event.links },
      log('info', 'epoch open', { epoch, first_step: firstStep }),
    ];
  }

  private onOpenFailed(event: Extract<RankEvent, { type: 'engine-open-failed' }>): RankEffect[] {
    const { epoch: state } = this;
    if (state.kind !== 'opening' || state.opening.epoch !== event.epoch) return [];
    return this.fail(state.opening.firstStep, event.code, event.message);
  }

  private onStep(event: Extract<RankEvent, { type: 'step' }>): RankEffect[] {
    const { epoch: state } = this;
    if (state.kind !== 'open' || event.epoch !== state.epoch) {
      return this.onStepOutsideEpoch(event.epoch);
    }
    // A resumed stream may repeat steps; the engine has them already.
    if (event.step < state.nextStep) return [];
    if (event.step > state.nextStep) {
      const message = `step ${event.step} arrived where ${state.nextStep} was due; steps have no gaps`;
      return this.fail(event.step, 'STEP_INVALID', message);
    }
    state.nextStep += 1;
    return [{ type: 'submit-step', record: event.record }];
  }

  /** Steps of old or closed epochs are dropped; a step of a future one is the coordinator's mistake. */
  private onStepOutsideEpoch(epoch: number): RankEffect[] {
    if (epoch <= this.epochMax.epoch && this.epoch.kind !== 'opening') return [];
    if (epoch < this.epochMax.epoch) return [];
    const message = `a step of epoch ${epoch} arrived before this rank was ready in it`;
    return [failed(epoch, 0, 'STEP_INVALID', message)];
  }

  private onEngineEvent(event: EngineEvent): RankEffect[] {
    const { epoch: state } = this;
    if (state.kind !== 'open' || event.epoch !== state.epoch) return [];
    if (event.kind === 'failed') {
      const code = isErrorCode(event.code) ? event.code : 'INTERNAL';
      return this.fail(event.step, code, event.message);
    }
    if (event.step !== state.nextResult || event.step >= state.nextStep) {
      const message = `the engine answered step ${event.step} where ${state.nextResult} was due`;
      return this.fail(event.step, 'INTERNAL', message);
    }
    state.nextResult += 1;
    const { epoch, step, bytes } = event;
    return [{ type: 'send-result', epoch, step, bytes }];
  }

  private onFence(event: Extract<RankEvent, { type: 'fence' }>): RankEffect[] {
    // Of an epoch that is over: the present one must not fall to a late message.
    if (event.epoch < this.currentEpoch()) return [];
    const effects = this.close(event.reason);
    if (this.attached) effects.push({ type: 'send-fenced', epoch: event.epoch });
    return effects;
  }

  private onLeaseExpired(): RankEffect[] {
    const { epoch: state } = this;
    if (state.kind !== 'open' && state.kind !== 'opening') return [];
    const epoch = this.currentEpoch();
    const effects = this.close('the coordinator was silent for the lease');
    const message = `nothing was heard from the coordinator for the lease; epoch ${epoch} was fenced`;
    effects.push(failed(epoch, 0, 'CONTROL_LOST', message));
    return effects;
  }

  private currentEpoch(): number {
    const { epoch: state } = this;
    if (state.kind === 'none') return 0;
    return state.kind === 'opening' ? state.opening.epoch : state.epoch;
  }

  /** Leaves the epoch, if there is one, without a word to the coordinator. */
  private close(reason: string): RankEffect[] {
    const { epoch: state } = this;
    if (state.kind === 'none' || state.kind === 'closed') return [];
    const epoch = this.currentEpoch();
    this.epoch = { kind: 'closed', epoch };
    return [{ type: 'fence-engine', reason }, log('info', 'epoch closed', { epoch, reason })];
  }

  private fail(step: number, code: FailureCode, message: string): RankEffect[] {
    const epoch = this.currentEpoch();
    return [...this.close(message), failed(epoch, step, code, message)];
  }
}

type FailureCode = Extract<RankEffect, { type: 'send-failed' }>['code'];

function failed(epoch: number, step: number, code: FailureCode, message: string): RankEffect {
  return { type: 'send-failed', epoch, step, code, message };
}

function log(
  level: 'info' | 'warn' | 'error',
  message: string,
  fields: Readonly<Record<string, unknown>>,
): RankEffect {
  return { type: 'log', level, message, fields };
}

/** Shares are equal when loading one would give the other. */
function sameShare(a: RankAssignment, b: RankAssignment): boolean {
  return (
    a.rank === b.rank &&
    a.planHash === b.planHash &&
    a.kvBlocks === b.kvBlocks &&
    a.slotsMax === b.slotsMax &&
    a.stepRowsMax === b.stepRowsMax &&
    a.threads === b.threads &&
    a.shareCores === b.shareCores
  );
}

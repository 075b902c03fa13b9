// The grpc data transport on a rank's side: one proved link per peer and epoch, between the engine's
// frames and the wire. Owns the listener and the links; links of an earlier epoch are closed before those
// of a new one are opened. Frames that arrive before the engine opens its epoch wait in their stream.
import { setTimeout as sleep } from 'node:timers/promises';
import { CoxswainError, toCoxswainError } from '../../base/errors.ts';
import type { EpochSpec, GrpcFrames, LinkSpec } from '../../engine/engine.ts';
import { dialFrames, type FramesLink, listenFrames } from '../../wire/frames-link.ts';
import type { GrpcListener } from '../../wire/grpc-listener.ts';
import type { LinkName } from '../../wire/keys.ts';
import { NonceMemory } from '../../wire/proof.ts';
import type { RankLog } from './options.ts';

const RETRY_MS = 100;

interface Waiting {
  readonly name: LinkName;
  resolve(link: FramesLink): void;
  reject(error: CoxswainError): void;
}

export class FramesService {
  private readonly dataKey: Uint8Array;
  private readonly log: RankLog;
  private readonly nonces = new NonceMemory();
  private listener: GrpcListener | null = null;
  private links = new Map<number, FramesLink>();
  private readonly waiting: Waiting[] = [];
  private generation = 0;

  constructor(dataKey: Uint8Array, log: RankLog) {
    this.dataKey = dataKey;
    this.log = log;
  }

  /** Listens (once) and gives the port. */
  async listen(host: string): Promise<number> {
    this.listener ??= await listenFrames({
      host,
      dataKey: this.dataKey,
      nonces: this.nonces,
      log: this.log,
      isExpected: (name) => this.waiting.some((waiting) => sameLink(waiting.name, name)),
      onLink: (name, link) => this.arrive(name, link),
    });
    return this.listener.port;
  }

  /**
   * Brings up the grpc links of `spec` and joins them to the engine's frames.
   * @throws CoxswainError LINK_TIMEOUT naming the peer, EPOCH_FENCED when another epoch replaced this.
   */
  async open(spec: Omit<EpochSpec, 'dataKey'>, frames: GrpcFrames): Promise<void> {
    this.closeLinks(`epoch ${spec.epoch} begins`);
    const { generation } = this;
    const wanted = spec.links.filter((link) => link.transport === 'grpc');
    // Each is this service's from the moment it stands: when one of them fails, closeLinks() ends the others.
    await Promise.all(
      wanted.map(async (link) => {
        const opened = await this.openLink(spec, link);
        if (generation === this.generation) this.links.set(link.peer, opened);
        else opened.close('its epoch is over');
      }),
    );
    if (generation !== this.generation) {
      throw new CoxswainError('EPOCH_FENCED', `Epoch ${spec.epoch} was replaced while it opened.`);
    }
    frames.onOutgoing((peer, frame) => this.links.get(peer)?.send(frame));
    for (const [peer, link] of this.links) {
      link.consume(
        (frame) => frames.deliver(peer, frame),
        (reason) => frames.closed(peer, reason),
      );
    }
  }

  closeLinks(reason: string): void {
    this.generation += 1;
    for (const waiting of this.waiting.splice(0)) {
      waiting.reject(new CoxswainError('EPOCH_FENCED', `A link was given up: ${reason}.`));
    }
    for (const link of this.links.values()) link.close(reason);
    this.links = new Map();
  }

  async close(): Promise<void> {
    this.closeLinks('this rank ends');
    await this.listener?.close();
  }

  private openLink(spec: Omit<EpochSpec, 'dataKey'>, link: LinkSpec): Promise<FramesLink> {
    const name: LinkName = {
      epoch: spec.epoch,
      incarnation: spec.incarnation,
      lowerRank: Math.min(spec.rank, link.peer),
      higherRank: Math.max(spec.rank, link.peer),
    };
    const deadline = performance.now() + spec.openTimeoutMs;
    return spec.rank > link.peer
      ? this.dial(name, link, deadline)
      : this.await(name, link, deadline);
  }

  private async dial(name: LinkName, link: LinkSpec, deadline: number): Promise<FramesLink> {
    const { generation } = this;
    for (;;) {
      const leftMs = deadline - performance.now();
      if (leftMs <= 0 || generation !== this.generation) throw linkTimeout(link, name.epoch);
      try {
        return await dialFrames({
          address: link.host.includes(':')
            ? `[${link.host}]:${link.port}`
            : `${link.host}:${link.port}`,
          dataKey: this.dataKey,
          link: name,
          nonces: this.nonces,
          deadlineMs: Math.min(leftMs, 2000),
        });
      } catch (thrown) {
        // The peer may not have heard of the epoch yet: it hangs up on links it does not expect.
        const { code, message } = toCoxswainError(thrown);
        if (code !== 'CONTROL_LOST') throw thrown;
        this.log.info({ peer: link.peer, reason: message }, 'data link not up yet');
        await sleep(RETRY_MS);
      }
    }
  }

  private await(name: LinkName, link: LinkSpec, deadline: number): Promise<FramesLink> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiting.splice(this.waiting.indexOf(waiting), 1);
        reject(linkTimeout(link, name.epoch));
      }, deadline - performance.now());
      const waiting: Waiting = {
        name,
        resolve: (frames) => {
          clearTimeout(timer);
          resolve(frames);
        },
        reject: (error) => {
          clearTimeout(timer);
          reject(error);
        },
      };
      this.waiting.push(waiting);
    });
  }

  private arrive(name: LinkName, link: FramesLink): void {
    const index = this.waiting.findIndex((waiting) => sameLink(waiting.name, name));
    const [waiting] = index < 0 ? [] : this.waiting.splice(index, 1);
    if (waiting) waiting.resolve(link);
    else link.close('nobody waits for this link any more');
  }
}

function sameLink(a: LinkName, b: LinkName): boolean {
  return (
    a.epoch === b.epoch &&
    a.incarnation === b.incarnation &&
    a.lowerRank === b.lowerRank &&
    a.higherRank === b.higherRank
  );
}

function linkTimeout(link: LinkSpec, epoch: number): CoxswainError {
  return new CoxswainError(
    'LINK_TIMEOUT',
    `The grpc link to rank ${link.peer} (${link.host}:${link.port}) did not open in epoch ${epoch}.`,
  );
}

// The grpc data transport: frames between two ranks over a gRPC connection of their own, proved with the
// key of this link in this epoch. The higher rank dials the lower. Slow, but crosses anything that gRPC
// crosses. Bytes only: what a frame means is the engine's business.
import { CoxswainError, toCoxswainError } from '../base/errors.ts';
import { dialGrpc } from './grpc-dialler.ts';
import { GrpcListener, type ListenerLog } from './grpc-listener.ts';
import type { MessagePipe } from './grpc-pipe.ts';
import { deriveLinkKey, type LinkName } from './keys.ts';
import { challengeCodec, dataFrameCodec, FRAMES_PATH, proofCodec } from './messages.ts';
import { PartJoiner, sendInParts } from './parts.ts';
import {
  type ChallengeFields,
  MutualProof,
  type NonceMemory,
  UNPROVED_BYTES_MAX,
  UNPROVED_MS_MAX,
} from './proof.ts';

/** A proved link. Frames arrive from consume() on; before it the stream holds a few back. */
export class FramesLink {
  private readonly pipe: MessagePipe;
  private readonly joiner = new PartJoiner();
  private hangUp: (() => void) | null;

  /** @param hangUp ends the connection under the pipe, where this side dialled it. */
  constructor(pipe: MessagePipe, hangUp: (() => void) | null = null) {
    this.pipe = pipe;
    this.hangUp = hangUp;
  }

  send(frame: Uint8Array): void {
    sendInParts(frame, (part, more) =>
      this.pipe.send(dataFrameCodec.encode({ frame: Buffer.from(part), more })),
    );
  }

  consume(onFrame: (frame: Uint8Array) => void, onClosed: (reason: string) => void): void {
    this.pipe.consume(
      (message) => {
        try {
          const { frame, more } = dataFrameCodec.decode(message);
          const whole = this.joiner.add(frame, more);
          if (whole !== null) onFrame(whole);
        } catch (thrown) {
          this.pipe.close(toCoxswainError(thrown).message);
        }
      },
      (reason) => {
        this.release();
        onClosed(reason);
      },
    );
  }

  close(reason: string): void {
    this.pipe.close(reason);
    this.release();
  }

  private release(): void {
    this.hangUp?.();
    this.hangUp = null;
  }
}

export interface FramesListenOptions {
  readonly host: string;
  readonly dataKey: Uint8Array;
  readonly nonces: NonceMemory;
  readonly log: ListenerLog;
  /** False for links that nobody waits for: another epoch, another rank. */
  readonly isExpected: (link: LinkName) => boolean;
  readonly onLink: (link: LinkName, frames: FramesLink) => void;
}

/** The lower rank's side. */
export function listenFrames(options: FramesListenOptions): Promise<GrpcListener> {
  const accept = async (pipe: MessagePipe, proved: () => void) => {
    try {
      const name = await acceptLink(pipe, options);
      proved();
      options.onLink(name, new FramesLink(pipe));
    } catch (thrown) {
      const { code, message } = toCoxswainError(thrown);
      options.log.warn({ peer: pipe.peer, code, reason: message }, 'stranger refused');
      pipe.close(message);
    }
  };
  return GrpcListener.listen({
    host: options.host,
    port: 0,
    path: FRAMES_PATH,
    log: options.log,
    onPipe: (pipe, proved) => void accept(pipe, proved),
  });
}

export interface FramesDialOptions {
  readonly address: string;
  readonly dataKey: Uint8Array;
  readonly link: LinkName;
  readonly nonces: NonceMemory;
  readonly deadlineMs: number;
}

/** The higher rank's side. @throws CoxswainError CONTROL_LOST (try again) or AUTH_FAILED. */
export async function dialFrames(options: FramesDialOptions): Promise<FramesLink> {
  const stream = await dialGrpc(options.address, FRAMES_PATH, options.deadlineMs);
  const { pipe } = stream;
  const proof = linkProof('dialler', options.link, options);
  try {
    sendBare(pipe, challengeCodec.encode({ ...proof.challenge }));
    proof.takeChallenge(await nextChallenge(pipe));
    sendBare(pipe, proofCodec.encode({ mac: proof.proof() }));
    proof.takeProof(proofCodec.decode(await nextBare(pipe)).mac);
    return new FramesLink(pipe, () => void stream.finish());
  } catch (thrown) {
    stream.destroy();
    throw thrown;
  }
}

async function acceptLink(pipe: MessagePipe, options: FramesListenOptions): Promise<LinkName> {
  const challenge = await nextChallenge(pipe);
  const name = parseIdentity(challenge.identity);
  if (!options.isExpected(name)) {
    throw new CoxswainError('AUTH_FAILED', `Nobody waits for the link ${challenge.identity}.`);
  }
  const proof = linkProof('listener', name, options);
  proof.takeChallenge(challenge);
  sendBare(pipe, challengeCodec.encode({ ...proof.challenge }));
  proof.takeProof(proofCodec.decode(await nextBare(pipe)).mac);
  sendBare(pipe, proofCodec.encode({ mac: proof.proof() }));
  return name;
}

function linkProof(
  role: 'dialler' | 'listener',
  link: LinkName,
  { dataKey, nonces }: { dataKey: Uint8Array; nonces: NonceMemory },
): MutualProof {
  return new MutualProof({
    key: deriveLinkKey(dataKey, link),
    role,
    purpose: 'link',
    identity: identityOf(link),
    clusterId: link.incarnation,
    context: ['grpc', identityOf(link)],
    nonces,
  });
}

function identityOf(link: LinkName): string {
  return `${link.epoch}/${link.incarnation}/${link.lowerRank}/${link.higherRank}`;
}

function parseIdentity(identity: string): LinkName {
  const match = /^(\d{1,15})\/([0-9a-f]{32})\/(\d{1,5})\/(\d{1,5})$/.exec(identity);
  if (match === null) throw new CoxswainError('AUTH_FAILED', 'The challenge names no link.');
  const [, epoch, incarnation = '', lowerRank, higherRank] = match;
  return {
    epoch: Number(epoch),
    incarnation,
    lowerRank: Number(lowerRank),
    higherRank: Number(higherRank),
  };
}

function sendBare(pipe: MessagePipe, bytes: Buffer): void {
  pipe.send(dataFrameCodec.encode({ frame: bytes }));
}

async function nextBare(pipe: MessagePipe): Promise<Uint8Array> {
  const message = await pipe.next(UNPROVED_MS_MAX);
  if (message.length > UNPROVED_BYTES_MAX) {
    throw new CoxswainError('AUTH_FAILED', `${message.length} bytes came before any proof.`);
  }
  return dataFrameCodec.decode(message).frame;
}

async function nextChallenge(pipe: MessagePipe): Promise<ChallengeFields> {
  return challengeCodec.decode(await nextBare(pipe));
}

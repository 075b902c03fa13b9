// A rank's way to its coordinator: dial, prove both ways, and hand over the channel.
import { dialGrpc } from './grpc-dialler.ts';
import type { ClusterKeys } from './keys.ts';
import { ATTACH_PATH } from './messages.ts';
import { MutualProof, type NonceMemory } from './proof.ts';
import { dialChannel, type SecureChannel } from './secure-channel.ts';

export interface ControlDialOptions {
  /** HOST:PORT of the coordinator. */
  readonly address: string;
  readonly keys: ClusterKeys;
  /** For logs of the other side; covered by the proof. */
  readonly identity: string;
  readonly nonces: NonceMemory;
  readonly deadlineMs: number;
}

export interface ControlConnection {
  readonly channel: SecureChannel;
  destroy(): void;
  /** After channel.close(): gives what was sent a moment to arrive, then cuts. */
  finish(): Promise<void>;
}

/**
 * @throws CoxswainError CONTROL_LOST, or AUTH_FAILED or HANDSHAKE_REFUSED: said by or found of a peer that has
 * proved nothing yet.
 */
export async function dialControl(options: ControlDialOptions): Promise<ControlConnection> {
  const stream = await dialGrpc(options.address, ATTACH_PATH, options.deadlineMs);
  const proof = new MutualProof({
    key: options.keys.control,
    role: 'dialler',
    purpose: 'control',
    identity: options.identity,
    clusterId: '',
    context: [],
    nonces: options.nonces,
  });
  try {
    const channel = await dialChannel(stream.pipe, proof);
    return { channel, destroy: stream.destroy, finish: stream.finish };
  } catch (thrown) {
    stream.destroy();
    throw thrown;
  }
}

// The coordinator's control port: every rank that proves the cluster token becomes a SecureChannel,
// everyone else is refused, logged and forgotten. What ranks may then say is the handshake's business
// (coordinator/shell), not this file's.
import { toCoxswainError } from '../base/errors.ts';
import { GrpcListener, type ListenerLog } from './grpc-listener.ts';
import type { MessagePipe } from './grpc-pipe.ts';
import type { ClusterKeys } from './keys.ts';
import { ATTACH_PATH } from './messages.ts';
import { MutualProof, NonceMemory } from './proof.ts';
import { acceptChannel, type SecureChannel } from './secure-channel.ts';

export interface ControlServerOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  readonly keys: ClusterKeys;
  readonly clusterId: string;
  readonly log: ListenerLog;
  /** A channel that is proved and has said nothing yet. */
  readonly onChannel: (channel: SecureChannel) => void;
}

export interface ControlServer {
  readonly port: number;
  close(): Promise<void>;
}

/** @throws CoxswainError CONFIG_INVALID when the address cannot be listened on. */
export function listenControl(options: ControlServerOptions): Promise<ControlServer> {
  const nonces = new NonceMemory();
  const accept = async (pipe: MessagePipe, proved: () => void) => {
    const proof = new MutualProof({
      key: options.keys.control,
      role: 'listener',
      purpose: 'control',
      identity: 'coordinator',
      clusterId: options.clusterId,
      context: [],
      nonces,
    });
    try {
      const channel = await acceptChannel(pipe, proof);
      proved();
      options.onChannel(channel);
    } catch (thrown) {
      const { code, message } = toCoxswainError(thrown);
      options.log.warn({ peer: pipe.peer, code, reason: message }, 'stranger refused');
    }
  };
  return GrpcListener.listen({
    host: options.host,
    port: options.port,
    path: ATTACH_PATH,
    log: options.log,
    onPipe: (pipe, proved) => void accept(pipe, proved),
  });
}

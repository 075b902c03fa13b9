// Dials one bidirectional gRPC stream on a connection of its own. The stream is not proved yet.
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, type ClientOptions, credentials } from '@grpc/grpc-js';
import { CoxswainError } from '../base/errors.ts';
import { GRPC_CHANNEL_LIMITS } from './grpc-listener.ts';
import { GrpcPipe, type MessagePipe } from './grpc-pipe.ts';

const CLIENT_OPTIONS: ClientOptions = {
  ...GRPC_CHANNEL_LIMITS,
  // A cluster's own traffic never goes through an HTTP proxy of the environment.
  'grpc.enable_http_proxy': 0,
  'grpc.use_local_subchannel_pool': 1,
  // Retries are the session's business: it must prove itself again on each new connection.
  'grpc.enable_retries': 0,
  // A peer whose host vanished without a word is noticed even while neither side has anything to say.
  'grpc.keepalive_time_ms': 10_000,
  'grpc.keepalive_timeout_ms': 5000,
};

export interface DialledStream {
  readonly pipe: MessagePipe;
  /** Cuts the stream and its connection at once. */
  destroy(): void;
  /** After pipe.close(): gives what was sent a moment to arrive, then cuts. */
  finish(): Promise<void>;
}

const FINISH_MS = 500;

/** @throws CoxswainError CONTROL_LOST when no connection stands within `deadlineMs`. */
export async function dialGrpc(
  address: string,
  path: string,
  deadlineMs: number,
): Promise<DialledStream> {
  const client = new Client(address, credentials.createInsecure(), CLIENT_OPTIONS);
  await new Promise<void>((resolve, reject) => {
    client.waitForReady(Date.now() + deadlineMs, (error) => {
      if (!error) return resolve();
      client.close();
      reject(
        new CoxswainError('CONTROL_LOST', `No connection to ${address} within ${deadlineMs} ms.`, {
          cause: error,
        }),
      );
    });
  });
  const identity = (bytes: Buffer) => bytes;
  const call = client.makeBidiStreamRequest<Buffer, Buffer>(path, identity, identity);
  const pipe = new GrpcPipe(call, false);
  const destroy = () => {
    call.cancel();
    client.close();
  };
  // Not every broken call says 'close': an error, or the moment that is given it, is an end as well.
  const ended = new Promise<void>((resolve) => {
    call.on('close', resolve);
    call.on('status', () => resolve());
    call.on('error', () => resolve());
  });
  return {
    pipe,
    destroy,
    finish: async () => {
      const timer = new AbortController();
      await Promise.race([
        ended,
        sleep(FINISH_MS, undefined, { signal: timer.signal }).catch(() => undefined),
      ]);
      timer.abort();
      destroy();
    },
  };
}

// A rank's dialling, with coordinators and impostors on real sockets: only who holds the token can end it.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { toCoxswainError } from '../../../../src/base/errors.ts';
import { CoordinatorLink } from '../../../../src/rank/shell/coordinator-link.ts';
import { type ControlServer, listenControl } from '../../../../src/wire/control-server.ts';
import { deriveClusterKeys } from '../../../../src/wire/keys.ts';
import { coordinatorBodyCodec, rankBodyCodec } from '../../../../src/wire/messages.ts';
import type { SecureChannel } from '../../../../src/wire/secure-channel.ts';

const keys = deriveClusterKeys('the token of this test cluster');
const foreignKeys = deriveClusterKeys('the token of some other cluster');

let server: ControlServer | null = null;
let link: CoordinatorLink | null = null;
const warnings: Record<string, unknown>[] = [];

beforeEach(() => {
  warnings.length = 0;
});
afterEach(async () => {
  link?.close('the test ends');
  await server?.close();
  server = null;
});

async function listen(
  at: { port: number; keys: typeof keys },
  onChannel: (channel: SecureChannel) => void,
): Promise<number> {
  const log = { warn: () => undefined };
  server = await listenControl({ host: '127.0.0.1', clusterId: 'c1', log, onChannel, ...at });
  return server.port;
}

function linkTo(port: number, joinTimeoutMs: number): CoordinatorLink {
  link = new CoordinatorLink({
    address: `127.0.0.1:${port}`,
    keys,
    identity: 'rank 0',
    joinTimeoutMs,
    log: {
      info: () => undefined,
      warn: (fields) => void warnings.push({ ...fields }),
      error: () => undefined,
    },
    handlers: {
      hello: () => ({ protocol: 1 }),
      onSession: () => undefined,
      onLost: () => undefined,
      onConnection: () => undefined,
      onBody: () => undefined,
    },
  });
  return link;
}

async function until(condition: () => boolean): Promise<void> {
  for (let tries = 0; tries < 500; tries += 1) {
    if (condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error('the condition did not come true within 5 s');
}

describe('a rank that is refused', () => {
  it('goes on dialling after an impostor refused it, and finds the coordinator later', async () => {
    const port = await listen({ port: 0, keys: foreignKeys }, () => undefined);
    const running = linkTo(port, 60_000).run();
    await until(() => warnings.length > 0);
    expect(warnings).toMatchObject([{ code: 'AUTH_FAILED' }]);
    await server?.close();
    let said = '';
    await listen({ port, keys }, (channel) => {
      channel.consume(
        (body) => {
          if (rankBodyCodec.decode(body).hello) said = 'hello';
        },
        () => undefined,
      );
    });
    await until(() => said !== '');
    link?.close('enough');
    await running;
  });

  it('says why at its join deadline when nobody better answered', async () => {
    const port = await listen({ port: 0, keys: foreignKeys }, () => undefined);
    const error = await linkTo(port, 300)
      .run()
      .catch((thrown: unknown) => toCoxswainError(thrown));
    expect(error).toMatchObject({ code: 'AUTH_FAILED' });
    expect(warnings).toHaveLength(1);
  });

  it('ends at once when the coordinator, proved, refuses it', async () => {
    const refused = { code: 'HANDSHAKE_REFUSED', sentence: 'another build' };
    const port = await listen({ port: 0, keys }, (channel) => {
      channel.consume(
        () => {
          channel.send(coordinatorBodyCodec.encode({ refused }));
          channel.close('refused');
        },
        () => undefined,
      );
    });
    const error = await linkTo(port, 60_000)
      .run()
      .catch((thrown: unknown) => toCoxswainError(thrown));
    expect(error).toMatchObject({ code: 'HANDSHAKE_REFUSED' });
    expect(warnings).toEqual([]);
  });
});

// A rank's way to its coordinator over the life of the process: dial, prove, say Hello, and when the
// stream breaks do it again. A stream that comes back within RESUME_MS goes on where it was (nobody above
// notices); later, or when the coordinator does not know the session any more, the session is over and
// the next Assign begins another. Whoever refuses this rank without having proved the token may be anyone:
// that is reported and the dialling goes on. Owns connections and sessions.
import { setTimeout as sleep } from 'node:timers/promises';
import type { ErrorCode } from '../../base/error-codes.ts';
import { CoxswainError, toCoxswainError } from '../../base/errors.ts';
import { type ControlConnection, dialControl } from '../../wire/control-client.ts';
import type { CoordinatorBody__Output as CoordinatorBody } from '../../wire/generated/coxswain/v1/CoordinatorBody.ts';
import type { Hello } from '../../wire/generated/coxswain/v1/Hello.ts';
import type { RankBody } from '../../wire/generated/coxswain/v1/RankBody.ts';
import type { ClusterKeys } from '../../wire/keys.ts';
import { coordinatorBodyCodec, rankBodyCodec } from '../../wire/messages.ts';
import { NonceMemory, type ProvedSession } from '../../wire/proof.ts';
import { ReliableSession } from '../../wire/reliable-session.ts';
import type { RankLog } from './options.ts';

export const RESUME_MS = 5000;
const DIAL_MS = 2000;
const BACKOFF_MS_MIN = 100;
const BACKOFF_MS_MAX = 1000;
/** How a dialling ends when the other side refuses, or fails to prove itself. */
const UNPROVED_CODES: readonly ErrorCode[] = ['AUTH_FAILED', 'HANDSHAKE_REFUSED'];

export interface LinkHandlers {
  hello(): Hello;
  /** A new session: its Assign follows at once. */
  onSession(): void;
  /** The session cannot be taken up again. */
  onLost(reason: string): void;
  /** A proved connection carries the session (new or taken up again). */
  onConnection(proved: ProvedSession): void;
  onBody(body: CoordinatorBody): void;
}

export interface CoordinatorLinkOptions {
  readonly address: string;
  readonly keys: ClusterKeys;
  readonly identity: string;
  readonly joinTimeoutMs: number;
  readonly log: RankLog;
  readonly handlers: LinkHandlers;
}

interface Session {
  readonly id: string;
  readonly reliable: ReliableSession<RankBody>;
}

export class CoordinatorLink {
  private readonly options: CoordinatorLinkOptions;
  private readonly nonces = new NonceMemory();
  private readonly stop = new AbortController();
  private session: Session | null = null;
  private connection: ControlConnection | null = null;
  /** When the stream broke, on performance.now(); 0 while it stands. */
  private brokenAt = 0;
  /** What was reported last of those who refused this rank unproved. */
  private lastRefusal = '';
  private lossTimer: NodeJS.Timeout | null = null;

  constructor(options: CoordinatorLinkOptions) {
    this.options = options;
  }

  /** Part of the session: kept until it arrived, or until the session is lost. */
  send(body: RankBody): void {
    try {
      this.session?.reliable.send(body);
    } catch (thrown) {
      this.connection?.channel.close(toCoxswainError(thrown).message);
    }
  }

  /**
   * Resolves after close(). @throws CoxswainError HANDSHAKE_REFUSED as soon as the proved coordinator
   * says so; after joinTimeoutMs without one JOIN_TIMEOUT, or AUTH_FAILED or HANDSHAKE_REFUSED when that
   * is what somebody unproved answered last.
   */
  async run(): Promise<void> {
    const { joinTimeoutMs } = this.options;
    let since = performance.now();
    let refused: CoxswainError | null = null;
    let backoffMs = BACKOFF_MS_MIN;
    while (!this.stop.signal.aborted) {
      try {
        await this.converse(() => {
          since = Number.POSITIVE_INFINITY;
        });
        since = performance.now();
        refused = null;
        backoffMs = BACKOFF_MS_MIN;
      } catch (thrown) {
        const error = toCoxswainError(thrown);
        if (error.code !== 'CONTROL_LOST') throw error;
        since = Math.min(since, performance.now());
        const refusal = unprovedRefusal(error);
        refused = refusal ?? refused;
        if (performance.now() - since > joinTimeoutMs) throw refused ?? this.joinTimeout(error);
        this.report(error, refusal, backoffMs);
      }
      await sleep(backoffMs, undefined, { signal: this.stop.signal }).catch(() => undefined);
      backoffMs = Math.min(backoffMs * 2, BACKOFF_MS_MAX);
    }
  }

  /** A refusal once as a warning, not with every attempt. */
  private report(error: CoxswainError, refusal: CoxswainError | null, retryInMs: number): void {
    const { log } = this.options;
    const fields = { reason: error.message, retry_in_ms: retryInMs };
    if (refusal === null || refusal.message === this.lastRefusal) {
      log.info(fields, 'coordinator not reached');
    } else {
      log.warn({ code: refusal.code, ...fields }, 'refused by someone who proved nothing');
    }
    this.lastRefusal = refusal?.message ?? '';
  }

  /** Says `goodbye` and ends for good. */
  close(goodbye: string): void {
    this.send({ goodbye: { reason: goodbye } });
    this.stop.abort();
    if (this.lossTimer !== null) clearTimeout(this.lossTimer);
    this.connection?.channel.close(goodbye);
  }

  /** @throws CoxswainError CONTROL_LOST, with what an unproved peer answered as its cause. */
  private async dial(): Promise<ControlConnection> {
    const { address, keys, identity } = this.options;
    const { nonces } = this;
    try {
      return await dialControl({ address, keys, identity, nonces, deadlineMs: DIAL_MS });
    } catch (thrown) {
      const cause = toCoxswainError(thrown);
      if (!UNPROVED_CODES.includes(cause.code)) throw cause;
      throw new CoxswainError('CONTROL_LOST', cause.message, { cause });
    }
  }

  /** One connection from dialling to its end. */
  private async converse(onStanding: () => void): Promise<void> {
    const connection = await this.dial();
    this.connection = connection;
    const abort = () => connection.channel.close('this rank ends');
    this.stop.signal.addEventListener('abort', abort);
    try {
      const { session } = this;
      connection.channel.send(
        rankBodyCodec.encode({
          hello: {
            ...this.options.handlers.hello(),
            session: session?.id ?? '',
            received: session?.reliable.received ?? 0,
          },
        }),
      );
      await this.listen(connection, onStanding);
    } finally {
      this.stop.signal.removeEventListener('abort', abort);
      this.session?.reliable.detach();
      this.connection = null;
      if (!this.stop.signal.aborted) this.noteBreak();
      await connection.finish();
    }
  }

  private listen(connection: ControlConnection, onStanding: () => void): Promise<void> {
    return new Promise((resolve, reject) => {
      let refusal: CoxswainError | null = null;
      let standing = false;
      connection.channel.consume(
        (bytes) => {
          const body = coordinatorBodyCodec.decode(bytes);
          if (body.refused) {
            refusal = new CoxswainError(
              'HANDSHAKE_REFUSED',
              `The coordinator refused this rank: ${body.refused.sentence}`,
            );
            return;
          }
          if (!standing) {
            standing = true;
            onStanding();
            this.begin(connection, body);
          }
          if (this.session?.reliable.take(body.number, body.acked)) {
            this.options.handlers.onBody(body);
          }
        },
        (reason) => {
          if (refusal !== null) reject(refusal);
          else if (standing) resolve();
          else reject(new CoxswainError('CONTROL_LOST', `The coordinator hung up: ${reason}.`));
        },
      );
    });
  }

  /** The first body after Hello says whether the session goes on. */
  private begin(connection: ControlConnection, body: CoordinatorBody): void {
    if (this.lossTimer !== null) clearTimeout(this.lossTimer);
    this.lossTimer = null;
    const { handlers, log } = this.options;
    if (body.resume && this.session !== null) {
      log.info({ broken_ms: Math.round(performance.now() - this.brokenAt) }, 'stream resumed');
      this.session.reliable.attach(connection.channel, body.resume.received);
    } else if (body.assign) {
      if (this.session !== null) this.lose('the coordinator began a new session');
      const reliable = new ReliableSession<RankBody>(rankBodyCodec.encode);
      this.session = { id: body.assign.session, reliable };
      reliable.attach(connection.channel, 0);
      handlers.onSession();
    } else {
      throw new CoxswainError('CONTROL_LOST', 'The coordinator answered Hello with neither word.');
    }
    handlers.onConnection(connection.channel.session);
  }

  private noteBreak(): void {
    this.brokenAt = performance.now();
    if (this.session === null || this.lossTimer !== null) return;
    this.lossTimer = setTimeout(() => {
      this.lossTimer = null;
      this.lose(`the control stream was broken for ${RESUME_MS} ms`);
    }, RESUME_MS);
  }

  private lose(reason: string): void {
    this.session = null;
    this.options.handlers.onLost(reason);
  }

  private joinTimeout(cause: CoxswainError): CoxswainError {
    const { address, joinTimeoutMs } = this.options;
    return new CoxswainError(
      'JOIN_TIMEOUT',
      `No coordinator answered at ${address} for ${joinTimeoutMs} ms: ${cause.message} ` +
        'Is it running, and does it listen on an address that this host reaches?',
      { cause },
    );
  }
}

function unprovedRefusal(error: CoxswainError): CoxswainError | null {
  return error.cause instanceof CoxswainError && UNPROVED_CODES.includes(error.cause.code)
    ? error.cause
    : null;
}

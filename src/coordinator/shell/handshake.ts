// What a rank must have in common with its coordinator: pure comparisons, each difference one sentence
// that says what differs and what to do.
import type { Plan } from '../../base/addon.ts';
import type { Hello__Output as Hello } from '../../wire/generated/coxswain/v1/Hello.ts';
import type { Loaded__Output as Loaded } from '../../wire/generated/coxswain/v1/Loaded.ts';
import { PROTOCOL_VERSION } from '../../wire/proof.ts';
import type { ModelFacts } from './options.ts';

/** null: welcome. */
export function refuseHello(hello: Hello, model: ModelFacts): string | null {
  if (hello.protocol !== PROTOCOL_VERSION) {
    return differs(
      'protocol version',
      String(hello.protocol),
      String(PROTOCOL_VERSION),
      SAME_BUILD,
    );
  }
  if (hello.buildId !== model.buildId) {
    return differs('build', hello.buildId, model.buildId, SAME_BUILD);
  }
  if (hello.numericsContract !== model.numericsContract) {
    return differs('numerics', hello.numericsContract, model.numericsContract, SAME_BUILD);
  }
  if (hello.fingerprint !== model.fingerprint) {
    return differs(
      'model fingerprint',
      hello.fingerprint.slice(0, 16),
      model.fingerprint.slice(0, 16),
      'give --model the same GGUF file',
    );
  }
  return null;
}

/** null: the share fits. `first` is what rank 0 loaded: all ranks must compute alike. */
export function refuseLoaded(
  loaded: Loaded,
  plan: Plan,
  model: ModelFacts,
  first: Loaded | null,
): string | null {
  if (loaded.planHash !== plan.hash) {
    return differs('plan', loaded.planHash.slice(0, 16), plan.hash.slice(0, 16), SAME_BUILD);
  }
  if (loaded.context !== model.context) {
    return differs('context', String(loaded.context), String(model.context), SAME_BUILD);
  }
  if (loaded.vocab !== model.vocab) {
    return differs('vocabulary', String(loaded.vocab), String(model.vocab), SAME_BUILD);
  }
  if (first !== null && loaded.numericsId !== first.numericsId) {
    return differs('numerics id', loaded.numericsId, first.numericsId, SAME_BUILD);
  }
  return null;
}

const SAME_BUILD = 'run the same Coxswain version everywhere';

function differs(what: string, theirs: string, ours: string, remedy: string): string {
  return `Its ${what} is ${theirs || '(none)'}, this cluster's is ${ours}: ${remedy}.`;
}

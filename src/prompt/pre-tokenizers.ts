// Pre-tokenizers: how byte-level BPE cuts text into words before merging, by the GGUF key
// tokenizer.ggml.pre. Each is a list of patterns applied in turn; every later one cuts the pieces that
// the earlier ones left, looking at a piece alone, and what a pattern does not match stays a piece.
//
// The patterns are llama.cpp's forms of the ones that the models were trained with, with \s written as
// the White_Space property (JavaScript's \s has U+FEFF and lacks U+0085). None of them backtracks over
// more than the run of white space it stands in, so long runs of anything cost linear time.
import { CoxswainError } from '../base/errors.ts';

export interface PreTokenizer {
  /** Appends the ends of the words of text, ascending; the last is text.length. */
  split(text: string, ends: number[]): void;
  /** A word that is a token as a whole is taken as it is, whatever the merges say. */
  readonly ignoreMerges: boolean;
  readonly addBosDefault: boolean;
}

interface Pattern {
  readonly source: string;
  /** Matches at nearly every position: tried there, instead of searched for. */
  readonly covers: boolean;
}

const SPACE = '\\p{White_Space}';
const covering = (source: string): Pattern => ({ source: ws(source), covers: true });
const sparse = (source: string): Pattern => ({ source: ws(source), covers: false });

/** Replaces \s (also inside classes) and \S (outside only) by the Unicode property. */
function ws(source: string): string {
  return source.replaceAll('\\s', SPACE).replaceAll('\\S', '\\P{White_Space}');
}

const CONTRACTIONS = `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`;
const BLANKS = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';

const llama3 = (numbers: string) =>
  covering(
    `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${numbers}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${BLANKS}`,
  );
const GPT2 = covering(
  `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)`,
);
const QWEN35 = covering(
  `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${BLANKS}`,
);
const HAN = '[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+';
const DEEPSEEK_V3 = [
  sparse('\\p{N}{1,3}'),
  sparse('[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+'),
  covering(
    `[!"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_\`{\\|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|${BLANKS}`,
  ),
];

/** Cased letters of the Unicode version that DeepSeek LLM was trained with. */
const CASED = [
  'A-Za-z\\u00b5\\u00c0-\\u00d6\\u00d8-\\u00f6\\u00f8-\\u01ba\\u01bc-\\u01bf\\u01c4-\\u0293',
  '\\u0295-\\u02af\\u0370-\\u0373\\u0376\\u0377\\u037b-\\u037d\\u037f\\u0386\\u0388-\\u038a\\u038c',
  '\\u038e-\\u03a1\\u03a3-\\u03f5\\u03f7-\\u0481\\u048a-\\u052f\\u0531-\\u0556\\u10a0-\\u10c5',
  '\\u13a0-\\u13f5\\u13f8-\\u13fd\\u1c90-\\u1cba\\u1cbd-\\u1cbf\\u1d00-\\u1d2b\\u1d6b-\\u1d77',
  '\\u1d79-\\u1d9a\\u1e00-\\u1f15\\u1f18-\\u1f1d\\u1f20-\\u1f45\\u1f48-\\u1f4d\\u1f50-\\u1f57\\u1f59',
  '\\u1f5b\\u1f5d\\u1f5f-\\u1f7d\\u1f80-\\u1fb4\\u1fb6-\\u1fbc\\u1fbe\\u1fc2-\\u1fc4\\u1fc6-\\u1fcc',
  '\\u1fd0-\\u1fd3\\u1fd6-\\u1fdb\\u1fe0-\\u1fec\\u1ff2-\\u1ff4\\u1ff6-\\u1ffc\\u2102\\u2107',
  '\\u210a-\\u2113\\u2115\\u2119-\\u211d\\u2124\\u2126\\u2128\\u212a-\\u212d\\u212f-\\u2134\\u2139',
  '\\u213c-\\u213f\\u2145-\\u2149\\u214e\\u2183\\u2184\\u2c00-\\u2c7b\\u2c7e-\\u2ce4\\u2ceb-\\u2cee',
  '\\u2cf2\\u2cf3\\ua640-\\ua66d\\ua680-\\ua69b\\ua722-\\ua76f\\ua771-\\ua787\\ua78b-\\ua78e',
  '\\uab70-\\uabbf\\ufb00-\\ufb06\\ufb13-\\ufb17\\uff21-\\uff3a\\uff41-\\uff5a',
  '\\u{10400}-\\u{1044f}\\u{104b0}-\\u{104d3}\\u{104d8}-\\u{104fb}\\u{10c80}-\\u{10cb2}',
  '\\u{10cc0}-\\u{10cf2}\\u{118a0}-\\u{118df}\\u{1e900}-\\u{1e943}',
].join('');

interface Family {
  readonly names: readonly string[];
  readonly patterns: readonly Pattern[];
  readonly ignoreMerges?: true;
  readonly addBos?: true;
}

const FAMILIES: readonly Family[] = [
  {
    names: [
      'llama-bpe',
      'llama3',
      'llama-v3',
      'falcon3',
      'falcon-h1',
      'pixtral',
      'midm-2.0',
      'lfm2',
    ],
    patterns: [llama3('\\p{N}{1,3}')],
    ignoreMerges: true,
    addBos: true,
  },
  {
    names: ['dbrx', 'smaug-bpe', 'glm4', 'chatglm-bpe'],
    patterns: [llama3('\\p{N}{1,3}')],
  },
  {
    names: ['qwen2', 'deepseek-r1-qwen', 'megrez', 'kormo', 'stablelm2', 'hunyuan', 'solar-open'],
    patterns: [llama3('\\p{N}')],
  },
  { names: ['qwen35'], patterns: [QWEN35] },
  {
    names: [
      'gpt-2',
      'phi-2',
      'jina-es',
      'jina-de',
      'jina-v1-en',
      'jina-v2-es',
      'jina-v2-de',
      'jina-v2-code',
      'gigachat',
      'a.x-4.0',
      'mellum',
      'modern-bert',
      'exaone4',
      'mpt',
      'olmo',
      'jais',
      'trillion',
    ],
    patterns: [GPT2],
  },
  {
    names: [
      'smollm',
      'starcoder',
      'refact',
      'command-r',
      'codeshell',
      'exaone',
      'minerva-7b',
      'mellum2',
    ],
    patterns: [sparse('\\p{N}'), GPT2],
  },
  {
    names: ['deepseek-coder'],
    patterns: [
      sparse('[\\r\\n]'),
      sparse('\\s?\\p{L}+'),
      sparse('\\s?\\p{P}+'),
      sparse(HAN),
      sparse('\\p{N}'),
    ],
  },
  {
    names: ['deepseek-v3', 'joyai-llm', 'hunyuan-dense', 'hy_v4'],
    patterns: DEEPSEEK_V3,
  },
  {
    names: ['deepseek-llm'],
    patterns: [
      sparse('[\\r\\n]'),
      sparse(`\\s?[${CASED}]+`),
      sparse('\\s?[!-\\/:-~\\uff01-\\uff0f\\uff1a-\\uff5e\\u2018-\\u201f\\u3000-\\u3002]+'),
      // The look-behind changes no match: it keeps a long inner run from being tried at each position.
      sparse('(?<!\\s)\\s+$'),
      sparse(HAN),
      sparse('\\p{N}+'),
    ],
  },
  {
    names: ['default'],
    patterns: [
      sparse('[\\p{P}\\$\\+<=>\\^~\\|]+'),
      GPT2,
      sparse('\\p{N}+'),
      sparse('[0-9][0-9][0-9]'),
    ],
  },
];

/** pre null: the file names none, which means 'default'. */
export function createPreTokenizer(pre: string | null): PreTokenizer {
  const name = pre ?? 'default';
  const family = FAMILIES.find((candidate) => candidate.names.includes(name));
  if (family === undefined) {
    throw new CoxswainError(
      'TOKENIZER_UNSUPPORTED',
      `tokenizer.ggml.pre is '${name}', which this version does not know; supported: ${FAMILIES.flatMap((known) => known.names).join(', ')}`,
    );
  }
  const stages = family.patterns.map(createStage);
  return {
    split: (text, ends) => splitFrom(stages, 0, { text, base: 0, ends }),
    ignoreMerges: family.ignoreMerges ?? false,
    addBosDefault: family.addBos ?? false,
  };
}

/** Calls piece(start, end) for every piece of text, in order. */
type Stage = (text: string, piece: (start: number, end: number) => void) => void;

function createStage(pattern: Pattern): Stage {
  return pattern.covers ? coveringStage(pattern.source) : sparseStage(pattern.source);
}

function coveringStage(source: string): Stage {
  const pattern = new RegExp(source, 'uy');
  return (text, piece) => {
    let gap = 0;
    let at = 0;
    while (at < text.length) {
      pattern.lastIndex = at;
      if (pattern.test(text)) {
        if (gap < at) piece(gap, at);
        piece(at, pattern.lastIndex);
        at = pattern.lastIndex;
        gap = at;
      } else {
        at += unitsAt(text, at);
      }
    }
    if (gap < at) piece(gap, at);
  };
}

function unitsAt(text: string, at: number): number {
  return (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
}

function sparseStage(source: string): Stage {
  const pattern = new RegExp(source, 'gu');
  return (text, piece) => {
    let at = 0;
    pattern.lastIndex = 0;
    for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
      if (at < match.index) piece(at, match.index);
      at = match.index + match[0].length;
      piece(match.index, at);
    }
    if (at < text.length) piece(at, text.length);
  };
}

interface Target {
  readonly text: string;
  readonly base: number;
  readonly ends: number[];
}

function splitFrom(stages: readonly Stage[], index: number, target: Target): void {
  const { text, base, ends } = target;
  const stage = stages[index];
  if (stage === undefined) {
    if (text !== '') ends.push(base + text.length);
    return;
  }
  const isLast = index + 1 === stages.length;
  stage(text, (start, end) => {
    if (isLast) ends.push(base + end);
    else splitFrom(stages, index + 1, { text: text.slice(start, end), base: base + start, ends });
  });
}

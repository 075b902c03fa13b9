// Original file: proto/coxswain/v1/control.proto

import type { Challenge as _coxswain_v1_Challenge, Challenge__Output as _coxswain_v1_Challenge__Output } from '../../coxswain/v1/Challenge.ts';
import type { Proof as _coxswain_v1_Proof, Proof__Output as _coxswain_v1_Proof__Output } from '../../coxswain/v1/Proof.ts';
import type { Hello as _coxswain_v1_Hello, Hello__Output as _coxswain_v1_Hello__Output } from '../../coxswain/v1/Hello.ts';
import type { Loaded as _coxswain_v1_Loaded, Loaded__Output as _coxswain_v1_Loaded__Output } from '../../coxswain/v1/Loaded.ts';
import type { Ready as _coxswain_v1_Ready, Ready__Output as _coxswain_v1_Ready__Output } from '../../coxswain/v1/Ready.ts';
import type { Result as _coxswain_v1_Result, Result__Output as _coxswain_v1_Result__Output } from '../../coxswain/v1/Result.ts';
import type { Failed as _coxswain_v1_Failed, Failed__Output as _coxswain_v1_Failed__Output } from '../../coxswain/v1/Failed.ts';
import type { Stats as _coxswain_v1_Stats, Stats__Output as _coxswain_v1_Stats__Output } from '../../coxswain/v1/Stats.ts';
import type { Fenced as _coxswain_v1_Fenced, Fenced__Output as _coxswain_v1_Fenced__Output } from '../../coxswain/v1/Fenced.ts';
import type { Goodbye as _coxswain_v1_Goodbye, Goodbye__Output as _coxswain_v1_Goodbye__Output } from '../../coxswain/v1/Goodbye.ts';
import type { Loading as _coxswain_v1_Loading, Loading__Output as _coxswain_v1_Loading__Output } from '../../coxswain/v1/Loading.ts';
import type { Long } from '@grpc/proto-loader';

export interface RankBody {
  'challenge'?: (_coxswain_v1_Challenge | null);
  'proof'?: (_coxswain_v1_Proof | null);
  'hello'?: (_coxswain_v1_Hello | null);
  'loaded'?: (_coxswain_v1_Loaded | null);
  'ready'?: (_coxswain_v1_Ready | null);
  'result'?: (_coxswain_v1_Result | null);
  'failed'?: (_coxswain_v1_Failed | null);
  'stats'?: (_coxswain_v1_Stats | null);
  'fenced'?: (_coxswain_v1_Fenced | null);
  'goodbye'?: (_coxswain_v1_Goodbye | null);
  'loading'?: (_coxswain_v1_Loading | null);
  'number'?: (number | string | Long);
  'acked'?: (number | string | Long);
  'kind'?: "challenge"|"proof"|"hello"|"loaded"|"ready"|"result"|"failed"|"stats"|"fenced"|"goodbye"|"loading";
}

export interface RankBody__Output {
  'challenge'?: (_coxswain_v1_Challenge__Output | null);
  'proof'?: (_coxswain_v1_Proof__Output | null);
  'hello'?: (_coxswain_v1_Hello__Output | null);
  'loaded'?: (_coxswain_v1_Loaded__Output | null);
  'ready'?: (_coxswain_v1_Ready__Output | null);
  'result'?: (_coxswain_v1_Result__Output | null);
  'failed'?: (_coxswain_v1_Failed__Output | null);
  'stats'?: (_coxswain_v1_Stats__Output | null);
  'fenced'?: (_coxswain_v1_Fenced__Output | null);
  'goodbye'?: (_coxswain_v1_Goodbye__Output | null);
  'loading'?: (_coxswain_v1_Loading__Output | null);
  'number': (number);
  'acked': (number);
  'kind'?: "challenge"|"proof"|"hello"|"loaded"|"ready"|"result"|"failed"|"stats"|"fenced"|"goodbye"|"loading";
}

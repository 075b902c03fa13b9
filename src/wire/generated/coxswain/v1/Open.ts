// Original file: proto/coxswain/v1/control.proto

import type { Link as _coxswain_v1_Link, Link__Output as _coxswain_v1_Link__Output } from '../../coxswain/v1/Link.ts';
import type { Long } from '@grpc/proto-loader';

export interface Open {
  'epoch'?: (number | string | Long);
  'incarnation'?: (string);
  'links'?: (_coxswain_v1_Link)[];
  'firstStep'?: (number | string | Long);
  'openTimeoutMs'?: (number);
}

export interface Open__Output {
  'epoch': (number);
  'incarnation': (string);
  'links': (_coxswain_v1_Link__Output)[];
  'firstStep': (number);
  'openTimeoutMs': (number);
}

// Original file: proto/coxswain/v1/control.proto

import type { Long } from '@grpc/proto-loader';

export interface Failed {
  'epoch'?: (number | string | Long);
  'step'?: (number | string | Long);
  'code'?: (string);
  'message'?: (string);
}

export interface Failed__Output {
  'epoch': (number);
  'step': (number);
  'code': (string);
  'message': (string);
}

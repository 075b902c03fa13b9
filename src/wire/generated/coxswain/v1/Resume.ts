// Original file: proto/coxswain/v1/control.proto

import type { Long } from '@grpc/proto-loader';

export interface Resume {
  'epoch'?: (number | string | Long);
  'ackedStep'?: (number | string | Long);
}

export interface Resume__Output {
  'epoch': (number);
  'ackedStep': (number);
}

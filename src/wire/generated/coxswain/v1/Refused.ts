// Original file: proto/coxswain/v1/control.proto


export interface Refused {
  'code'?: (string);
  'sentence'?: (string);
}

export interface Refused__Output {
  'code': (string);
  'sentence': (string);
}

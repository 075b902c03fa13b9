// Original file: proto/coxswain/v1/control.proto


export interface Link {
  'peer'?: (number);
  'transport'?: (string);
  'host'?: (string);
  'port'?: (number);
}

export interface Link__Output {
  'peer': (number);
  'transport': (string);
  'host': (string);
  'port': (number);
}

export * from './inventories.ts';
export * from './member.ts';
export * from './placement.ts';
export * from './striper.ts';
export * from './stripes.ts';
export * from './volume-set.ts';

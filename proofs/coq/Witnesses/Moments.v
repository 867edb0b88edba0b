(** Witnesses of Statements/Moments.v, all in width 2: layers that are plus or minus the identity, or such
    permutations. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Laws Products Noise Moments.
From LAI Require Import Vectors Variance Products Noise Moments Witness Witnesses.Instances.
From LAI Require Statements.Moments.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma coin_gt0 (R : realFieldType) b : 0 < prob (coin R) b. Proof. by rewrite invr_gt0 ltr0n. Qed.
Ltac take_signs R :=
  exists [finType of {ffun bool * 'I_2 -> bool}]; split;
    [by rewrite card_ffun card_prod !card_bool card_ord|];
  exists (draws (coin R) [finType of bool * 'I_2]); split; [exact: draws_gt0 (coin_gt0 R)|];
  exists two; split=> //.

Lemma noise_variance : ltac:(witness Statements.Moments.noise_variance).
Proof.
move=> R; take_signs R; exists (signs R 2 true), (signs R 2 false), 2%N; split=> //.
by split; [exact: signs_independent|exact: signs_centred].
Qed.

Lemma gain_one (R : rcfType) n : gain_le (1%:M : 'M[R]_n) 1.
Proof. by split=> [|v]; rewrite ?ler01 // mul1mx mul1r. Qed.
Lemma one_neq0 (R : ringType) n : (1%:M : 'M[R]_n.+1) != 0. Proof. exact: oner_neq0. Qed.

Lemma noise_bound : ltac:(witness Statements.Moments.noise_bound).
Proof.
move=> R; take_signs R; exists (fun=> 1%:M); split=> [k|]; first exact: one_neq0.
exists (signs R 2 true), (signs R 2 false), 2%N; split=> //; exists (fun=> 1), (fun=> 1).
split; first exact: signs_independent.
split; first exact: signs_centred.
by split=> t; rewrite ?signs_energy ?expr1n; [|split]; exact: gain_one.
Qed.

(* Every layer permutes the two units, or not, and has a sign; the first unit's gate alone is open. *)
Section Permutations.
Variable R : realFieldType.
Local Notation layers := [finType of {ffun 'I_2 -> bool * bool}].
Local Notation law := (draws (fair R) [finType of 'I_2]).
Definition layer (b : bool * bool) : 'M[R]_2 := \matrix_(i, k) (side R b.1 * ((i == k) == b.2)%:R).
Definition chain (w : layers) (l : nat) : 'M[R]_2 := layer (w (inord l)).
Fixpoint down (w : layers) k : 'cV[R]_2 :=
  if k is k'.+1 then diag_mx (corner R 0 1) *m (chain w (2 - k))^T *m down w k' else corner R 1 0.
Lemma layer_norm b (i : 'I_2) : dot (col i (layer b)) (col i (layer b)) = 1.
Proof.
rewrite /dot big_ord_recl big_ord1 !big_ord1 !mxE /side.
by case: b => [[] []]; case: i => [[|[|i]]] // h; rewrite -!val_eqE /=; ring.
Qed.
Lemma layer_average (i : 'I_2) : average (fair R) (fun b => col i (layer b) *m (col i (layer b))^T)
  = (1 / 2%:R)%:M.
Proof.
apply/matrixP => k l; rewrite averageE fairE !mxE !big_ord1 !mxE -!val_eqE /side.
by case: i => [[|[|i]]] // h; case: k => [[|[|k]]] // hk; case: l => [[|[|l]]] // hl /=; field.
Qed.
Lemma chain_gated w :
  gated 2 (d := two) (chain w) (fun=> corner R 0 1) (Trace (fun=> corner R 1 0) (fun l => down w (2 - l))).
Proof. by case=> [|[|l]]. Qed.
Lemma chain_isotropic : isotropic law 2 (d := two) (fun w => chain w) (fun _ _ => 1).
Proof.
split=> [w l i|l i _|]; first exact: layer_norm.
  by rewrite -[RHS](layer_average i) -(draws_average (fair R) (inord l : 'I_2)).
move=> f; have := @draws_independent R _ (fair R) _ (fun=> [eqType of 'M[R]_2]) (fun=> layer) f.
have e t w : chain w (t : 'I_2) = layer (w t) by rewrite /chain inord_val.
move=> h; rewrite (eq_mean _ (fun w => eq_bigr _ (fun t _ => congr1 (f t) (e t w)))) h.
by apply: eq_bigr => t _; apply: eq_mean => w; rewrite e.
Qed.
End Permutations.

Lemma gate_corrected : ltac:(witness Statements.Moments.gate_corrected).
Proof.
move=> R; have c0 := corner_neq0 R 1 0; have r0 := corner_neq0 R 0 1.
exists [finType of {ffun 'I_2 -> bool * bool}]; split;
  first by rewrite card_ffun card_prod !card_bool card_ord.
exists (draws (fair R) [finType of 'I_2]); split; first exact: draws_gt0 (@fair_gt0 R).
exists two; split=> //; exists 2%N; split=> //; exists 2%N; split=> //.
exists (@chain R), (fun _ _ => corner R 1 0); split=> [*|]; first exact: c0.
exists (fun=> corner R 1 0); split=> [*|]; first exact: c0.
exists (fun w _ l => down R w (2 - l)), (fun w l => down R w (2 - l)), (fun _ _ => corner R 0 1).
split=> [*|]; first exact: r0.
exists (fun=> corner R 0 1); split=> [*|]; first exact: r0.
exists (fun _ _ => 1), (fun=> corner R 1 0); split=> [*|]; first exact: c0.
exists (corner R 1 0); split; first exact: c0.
split=> [w|]; first by split=> [z|]; exact: chain_gated.
by split=> //; exact: chain_isotropic.
Qed.

Lemma noise_bound_attained : ltac:(witness Statements.Moments.noise_bound_attained).
Proof.
move=> R; exists [finType of {ffun bool * 'I_2 -> bool}]; split;
  first by rewrite card_ffun card_prod !card_bool card_ord.
exists (draws (coin R) [finType of bool * 'I_2]); split; first exact: draws_gt0 (coin_gt0 R).
exists (signs R 1 true), (signs R 1 false), 2%N; split=> //; exists (fun=> 1); split;
  first exact: signs_independent.
by split; [exact: signs_centred|move=> t; rewrite expr1n; split; exact: signs_energy].
Qed.

(* Entries 0, 1 and -1, of chances 2/3, 1/6 and 1/6: their variance is 1/3, and so is their fourth moment. *)
Section Entries.
Variable R : realFieldType.
Local Notation places := [finType of 'I_2 * 'I_2].
Definition chance (s : option bool) : R := if s is Some _ then 6%:R^-1 else 2%:R / 3%:R.
Definition entry (s : option bool) : R := if s is Some b then side R b else 0.
Lemma sum3 (F : option bool -> R) : \sum_s F s = F None + (F (Some true) + F (Some false)).
Proof. by rewrite (bigD1 None) //= (bigD1 (Some true)) //= (big_pred1 (Some false)) // => [[[]|]]. Qed.
Lemma chance_gt0 s : 0 < chance s.
Proof. by case: s => [b|]; rewrite /= ?divr_gt0 ?invr_gt0 ?ltr0n. Qed.
Lemma chance_sum : \sum_s chance s = 1. Proof. by rewrite sum3 /=; field. Qed.
Definition three : law R [finType of option bool] := Law (fun s => ltW (chance_gt0 s)) chance_sum.
Definition drawn (w : {ffun places -> option bool}) : 'M[R]_2 := \matrix_(i, k) entry (w (i, k)).
Lemma drawn_gaussian : gaussian_moments (draws three places) drawn 3%:R^-1.
Proof.
have one i k (h : R -> R) : mean (draws three places) (fun w => h (drawn w i k))
  = \sum_s chance s * h (entry s).
  rewrite -[RHS](draws_one three (i, k) (fun s => h (entry s))); apply: eq_mean => w; by rewrite mxE.
split=> [i k|f].
  by rewrite (one i k id) !(one i k (fun x => x ^+ _)) !sum3 /= /side; split; field.
have := @draws_independent R _ three _ (fun=> R) (fun=> entry) f.
have e x w : drawn w x.1 x.2 = entry (w x) by case: x => i k; rewrite mxE.
move=> h; rewrite (eq_mean _ (fun w => eq_bigr _ (fun x _ => congr1 (f x) (e x w)))) h.
by apply: eq_bigr => x _; apply: eq_mean => w; rewrite e.
Qed.
End Entries.

Lemma random_weights_variance : ltac:(witness Statements.Moments.random_weights_variance).
Proof.
move=> R; have c0 := corner_neq0 R 1 0; have g := drawn_gaussian R.
exists [finType of {ffun 'I_2 * 'I_2 -> option bool}]; split.
  by rewrite card_ffun card_option card_bool card_prod card_ord.
exists (draws (three R) [finType of 'I_2 * 'I_2]); split; first by apply: draws_gt0 => s; exact: chance_gt0.
exists 2%N; split=> //; exists 2%N; split=> //; exists (@drawn R), 3%:R^-1, (corner R 1 0); split=> //.
exists (corner R 1 0); split=> //; exists (fun=> true), (fun=> true); split=> //.
have [-> _ _] := @Moments.random_weights_variance R _ _ _ _ _ _ (corner R 1 0) (corner R 1 0) (fun=> true)
  (fun=> true) g.
by rewrite (corner_dot R 1 0) mulr1 mulf_neq0 ?invr_eq0 ?pnatr_eq0 // -lt0n big_ord_recl big_ord1.
Qed.

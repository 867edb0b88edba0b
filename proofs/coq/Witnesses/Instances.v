(** What the witnesses have in common: traces whose gradients halve from layer to layer, a fair coin, linear
    losses. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients Laws Descent.
From LAI Require Import Vectors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* The first unit vector, and the matrix that has a 1 in its corner. *)
Definition corner (R : ringType) m n : 'M[R]_(m.+1, n.+1) := delta_mx 0 0.
Lemma corner_neq0 (R : ringType) m n : corner R m n != 0.
Proof. by apply/eqP => /matrixP /(_ 0 0); rewrite !mxE eqxx => /eqP; rewrite oner_eq0. Qed.
Lemma corner_dot (R : ringType) m n : dot (corner R m n) (corner R m n) = 1.
Proof.
rewrite /dot (bigD1 0) //= (bigD1 0) //= !mxE eqxx mulr1 !big1 ?addr0 // => [i /negPf i0|i /negPf i0].
  by apply: big1 => k _; rewrite !mxE i0 mul0r.
by rewrite !mxE i0 andbF mul0r.
Qed.
Lemma corner_outer (R : ringType) m n : corner R m 0 *m (corner R n 0)^T = corner R m n.
Proof. by rewrite trmx_delta mul_delta_mx. Qed.

(* A linear loss, and one that is so but for a constant. *)
Lemma gradient_affine (R : realFieldType) m n (G X : 'M[R]_(m, n)) c : gradient (fun Y => dot G Y + c) X G.
Proof.
move=> e e0; exists 1 => // D _; rewrite dotDr opprD addrACA subrr addr0 addrAC addrK subrr normr0.
by rewrite mulr_ge0 ?(ltW e0) //; apply: sumr_ge0 => i _; apply: sumr_ge0.
Qed.
Lemma gradient_dot (R : realFieldType) m n (G X : 'M[R]_(m, n)) : gradient (dot G) X G.
Proof.
move=> e e0; exists 1 => // D _; rewrite dotDr addrAC addrK subrr normr0.
by rewrite mulr_ge0 ?(ltW e0) //; apply: sumr_ge0 => i _; apply: sumr_ge0.
Qed.

Section Halving.
Variables (R : realFieldType) (L : nat).
Local Notation half := (2%:R^-1 : R).
(* Width 2, activations of length 1, the gradient k layers below layer L shrunk by 2^k; all along the first
   unit vector. *)
Definition two : nat -> nat := fun=> 2%N.
Definition halving : trace R two := Trace (fun=> corner R 1 0) (fun l => half ^+ (L - l) *: corner R 1 0).
Lemma half_gt0 : 0 < half. Proof. by rewrite invr_gt0 ltr0n. Qed.
Lemma halving_proper l : act halving l != 0 /\ grad halving l != 0.
Proof.
split; first exact: (corner_neq0 R 1 0).
by rewrite scaler_eq0 negb_or expf_neq0 ?gt_eqF ?half_gt0 //=; exact: (corner_neq0 R 1 0).
Qed.
Lemma halving_alpha l : alpha halving halving l = 1. Proof. exact: corner_dot. Qed.
Lemma halving_beta l : beta halving halving l = half ^+ (2 * (L - l)).
Proof. by rewrite /beta /= dotZl dotZr (corner_dot R 1 0) mulr1 -exprD addnn -mul2n. Qed.
Lemma halving_signal : beta halving halving L = 1. Proof. by rewrite halving_beta subnn muln0 expr0. Qed.
Lemma halving_alphas k : \sum_(1 <= l < k.+1) alpha halving halving l = k%:R.
Proof. by rewrite (eq_bigr (fun=> 1)) => [|l _]; rewrite ?halving_alpha // sumr_const_nat subn1. Qed.
Lemma half_lt1 : 0 < half < 1. Proof. by rewrite half_gt0 invf_lt1 ?ltr0n // ltr1n. Qed.
Lemma halving_decays l : 0 <= beta halving halving l <= beta halving halving L.
Proof.
have /andP [h0 h1] := half_lt1.
by rewrite halving_signal (halving_beta l) exprn_ge0 ?exprn_ile1 ?(ltW h0) ?(ltW h1).
Qed.
End Halving.

Section Norms.
Variables (R : rcfType) (L n : nat).
Local Notation half := (2%:R^-1 : R).
Local Notation trace := (halving R L).
Local Notation V := (fun _ : 'I_n => halving R L).
Lemma corner_norm p q : norm (corner R p q) = 1. Proof. by rewrite /norm corner_dot sqrtr1. Qed.
Lemma halving_grad_norm l : norm (grad trace l) = half ^+ (L - l).
Proof. by rewrite normZ (corner_norm 1 0) mulr1 ger0_norm // exprn_ge0 // ltW ?half_gt0. Qed.
Lemma halving_cos l k : cos (grad trace l) (grad trace k) = 1.
Proof.
rewrite /cos (halving_grad_norm l) (halving_grad_norm k) /= dotZl dotZr (corner_dot R 1 0) mulr1.
by apply: divff; rewrite mulf_neq0 // expf_neq0 // gt_eqF ?half_gt0.
Qed.
Lemma halving_A1 : A1 L V trace half.
Proof.
split; first exact: half_lt1.
by split=> [z|] l _; rewrite !halving_grad_norm subnn expr0 mulr1.
Qed.
Lemma halving_A2 : A2 L V trace 1. Proof. by split=> [|z l _|l _]; rewrite ?ltr01 //= (corner_norm 1 0). Qed.
Lemma halving_A3 : A3 L V trace. Proof. by move=> z l _; rewrite halving_cos ler01. Qed.
End Norms.

(* Two samples, two layers or more, and traces as above. *)
Ltac take_halving R L :=
  exists two; split=> //; exists 2%N; split=> //; exists 2%N; split=> //; exists (fun=> halving R L);
  split; [by move=> *; apply: halving_proper|exists (halving R L); split;
    [by move=> *; apply: halving_proper|]].

(* Two fair coins. *)
Section Coins.
Variable R : realFieldType.
Lemma fair_sum : \sum_(w : bool * bool) 4%:R^-1 = 1 :> R.
Proof. by rewrite sumr_const card_prod !card_bool -[_ *+ _]mulr_natr; apply: mulVf; rewrite pnatr_eq0. Qed.
Definition fair : law R [finType of bool * bool] :=
  @Law R [finType of bool * bool] (fun=> 4%:R^-1) (fun=> ltW (etrans (invr_gt0 _) (ltr0n _ 4))) fair_sum.
Lemma fair_gt0 w : 0 < prob fair w. Proof. by rewrite invr_gt0 ltr0n. Qed.
Lemma fairE X : mean fair X = (X (true, true) + X (true, false) + (X (false, true) + X (false, false)))
  / 4%:R.
Proof.
rewrite /mean (eq_bigr (fun w => prob fair (w.1, w.2) * X (w.1, w.2))) => [|[] //].
rewrite -(pair_bigA _ (fun a b => prob fair (a, b) * X (a, b))) /= !big_bool /=.
by rewrite -!mulrDr mulrC.
Qed.
Lemma fair_some P X : \sum_(w | P w) prob fair w * X w = mean fair (fun w => if P w then X w else 0).
Proof. by rewrite big_mkcond; apply: eq_bigr => w _; case: (P w); rewrite ?mulr0. Qed.
Definition side (b : bool) : R := if b then 1 else -1.
(* Three layers: the first coin is every layer's, the second one moves the lower layers alone. *)
Definition noisy (l : 'I_3) (w : bool * bool) := 2%:R + side w.1 + (if l == ord_max then 0 else side w.2).
(* Here it moves the last layer alone. *)
Definition calm (l : 'I_3) (w : bool * bool) := side w.1 + (if l == ord_max then side w.2 else 0).
End Coins.
Ltac take_fair R := exists [finType of bool * bool]; split; [by rewrite card_prod !card_bool|];
  exists (fair R); split; [exact: fair_gt0|].

(** Sums over all orders of n samples: what comes before one of them. *)
From mathcomp Require Import all_ssreflect fingroup perm all_algebra ring.
From LAI.Statements Require Import Networks.
From LAI Require Import Vectors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Half of all orders put i before j. *)
Lemma half_of_orders (R : ringType) n (i j : 'I_n) : i != j ->
  2%:R * (\sum_(s : 'S_n) (s i < s j)%N%:R) = n`!%:R :> R.
Proof.
move=> ne; rewrite mulr2n mulrDl mul1r {1}(reindex_inj (mulgI (tperm i j))) -big_split /=.
rewrite (eq_bigr (fun=> 1)) => [|s _].
  by rewrite sumr_const (eq_card (B := [set: 'S_n])) ?cardsT ?card_Sn // => s; rewrite !inE.
rewrite !permM tpermL tpermR -natrD.
have : s i != s j by rewrite (inj_eq perm_inj).
by rewrite -val_eqE /=; case: ltngtP.
Qed.

Lemma sum_orders (R : ringType) n (a : R) : \sum_(s : 'S_n) a = n`!%:R * a.
Proof.
by rewrite sumr_const (eq_card (B := [set: 'S_n])) ?cardsT ?card_Sn ?mulr_natl // => s; rewrite !inE.
Qed.

(* What comes before j, on average over the orders. *)
Lemma sum_before (R : ringType) (V : lmodType R) n (g : 'I_n -> V) j :
  2%:R *: (\sum_(s : 'S_n) \sum_(i | (s i < s j)%N) g i) = n`!%:R *: (\sum_i g i - g j).
Proof.
have -> : \sum_(s : 'S_n) \sum_(i | (s i < s j)%N) g i
  = \sum_(s : 'S_n) \sum_i if (s i < s j)%N then g i else 0.
  by apply: eq_bigr => s _; rewrite big_mkcond.
rewrite exchange_big scaler_sumr (bigD1 j) //= [in RHS](bigD1 j) //= [in RHS]addrAC subrr add0r
  [in RHS]scaler_sumr.
rewrite big1 ?scaler0 ?add0r => [|s _]; last by rewrite ltnn.
apply: eq_bigr => i ne; rewrite -(half_of_orders R ne) -scalerA; congr (_ *: _).
by rewrite scaler_suml; apply: eq_bigr => s _; case: ifP; rewrite ?scale1r ?scale0r.
Qed.
